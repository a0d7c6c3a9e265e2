#include "perseus/planning/hardware_facts/merge.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace perseus::hardware_facts {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A value that is known to 1 W.
Estimate Watts(double value) { return {value, value - 1, value + 1, 10}; }

// The nodes a, b, c, … with these blocking powers at 1410 MHz.
std::vector<HardwareFacts> NodesThatBlockAt(const std::vector<double>& powers) {
  std::vector<HardwareFacts> nodes;
  for (const double power : powers) {
    HardwareFacts node;
    node.host = std::string(1, static_cast<char>('a' + static_cast<int>(nodes.size())));
    node.gpu_name = "G";
    node.driver_version = "570";
    node.measured_at = fmt::format("2026-02-{:02}T00:00:00Z", 20 - nodes.size());
    node.perseus_version = "0.1.0";
    node.gpu_count = 8;
    node.power = {{1410, {}, Watts(power), {}}};
    nodes.push_back(node);
  }
  return nodes;
}

MergedFacts Merged(const std::vector<HardwareFacts>& nodes) {
  auto merged = Merge(nodes);
  EXPECT_TRUE(merged) << merged.error().message;
  return merged.value_or(MergedFacts());
}

TEST(Merge, TakesTheMedianOfNodesThatAgree) {
  const MergedFacts merged = Merged(NodesThatBlockAt({80, 84, 82, 81}));
  EXPECT_THAT(merged.differences, IsEmpty());
  EXPECT_EQ(merged.facts.host, "a and 3 more");
  EXPECT_EQ(merged.facts.nodes, 4);
  EXPECT_EQ(merged.facts.measured_at, "2026-02-20T00:00:00Z");
  // The mean of 81 and 82. The interval covers 80 - 1 to 84 + 1.
  EXPECT_EQ(merged.facts.power[0].blocked_w, (Estimate{81.5, 79, 85, 40}));
  // What was merged can be written and read.
  EXPECT_EQ(Parse(Format(merged.facts), "merged.toml").value(), merged.facts);
}

TEST(Merge, RefusesOneMeasurementTwice) {
  auto nodes = NodesThatBlockAt({80, 84});
  nodes.push_back(nodes.front());
  const auto merged = Merge(nodes);
  ASSERT_FALSE(merged);
  EXPECT_THAT(merged.error().message,
              HasSubstr("those of a at 2026-02-20T00:00:00Z, so this node would count twice"));
  // Another measurement of the same host is another matter.
  nodes.back().measured_at = "2026-02-21T00:00:00Z";
  EXPECT_EQ(Merged(nodes).facts.nodes, 3);
}

TEST(Merge, OneNodeStaysAsItIs) {
  const auto nodes = NodesThatBlockAt({80});
  EXPECT_EQ(Merged(nodes).facts, nodes.front());
}

// Median 81, MAD 1: the bound is 10 % of 81, because 5 MAD are less. The interval of 91 begins at
// 90, which is 9 from the median, and 9 > 8.1. That of 90 begins 8 from the median.
TEST(Merge, ANodeDiffersIfItsIntervalIsTooFarFromTheMedian) {
  const MergedFacts near = Merged(NodesThatBlockAt({80, 81, 82, 80, 90}));
  EXPECT_THAT(near.differences, IsEmpty());
  const MergedFacts far = Merged(NodesThatBlockAt({80, 81, 82, 80, 91}));
  EXPECT_THAT(far.differences, ElementsAre("e differs: the blocking power at 1410 MHz is 91 W, and "
                                           "the median of 5 nodes is 81 W"));
  // The node that differs is not in the merged value.
  EXPECT_EQ(far.facts.power[0].blocked_w, (Estimate{80.5, 79, 83, 40}));
}

// Median 80, MAD 10, so the bound is 50.
TEST(Merge, ValuesThatVaryOnAllNodesAllowMore) {
  EXPECT_THAT(Merged(NodesThatBlockAt({70, 80, 90, 60, 120})).differences, IsEmpty());
  EXPECT_THAT(Merged(NodesThatBlockAt({70, 80, 90, 60, 132})).differences, testing::SizeIs(1));
}

TEST(Merge, AnUncertainValueDoesNotDiffer) {
  auto nodes = NodesThatBlockAt({80, 81, 82, 80, 200});
  nodes[4].power[0].blocked_w = Estimate{200, 85, 300, 2};
  EXPECT_THAT(Merged(nodes).differences, IsEmpty());
}

TEST(Merge, LessThanHalfOfTheNodesDiffer) {
  EXPECT_THAT(Merged(NodesThatBlockAt({80, 80, 80, 160, 20})).differences, testing::SizeIs(2));
  const MergedFacts halves = Merged(NodesThatBlockAt({80, 80, 160, 160}));
  EXPECT_THAT(halves.differences, IsEmpty());
  EXPECT_EQ(halves.facts.power[0].blocked_w, (Estimate{120, 79, 161, 40}));
}

TEST(Merge, TwoNodesDifferFromEachOther) {
  EXPECT_THAT(Merged(NodesThatBlockAt({80, 89})).differences, IsEmpty());
  const MergedFacts merged = Merged(NodesThatBlockAt({80, 100}));
  EXPECT_THAT(merged.differences,
              ElementsAre("a and b differ: the blocking power at 1410 MHz is 80 W on the one and "
                          "100 W on the other (merge a third node to see which one is unusual)"));
  EXPECT_EQ(merged.facts.power[0].blocked_w, (Estimate{90, 79, 101, 20}));
}

TEST(Merge, MergesEachCaseWithItsLike) {
  auto nodes = NodesThatBlockAt({80, 80, 80});
  nodes[0].switches = {{Direction::kUp, true, true, {10, 9, 11, 5}, 20, {1, 1, 1, 5}},
                       {Direction::kDown, true, true, {5, 5, 5, 5}, 6, {1, 1, 1, 5}}};
  nodes[1].switches = {{Direction::kUp, true, true, {12, 11, 13, 5}, 30, {1, 1, 1, 5}}};
  nodes[2].switches = {{Direction::kUp, true, true, {40, 39, 41, 5}, 90, {1, 1, 1, 5}}};
  nodes[2].interference = {{"launch", 10, 0, {0.02, 0.01, 0.03, 5}}};
  nodes[1].energy_counter = EnergyCounterFacts{{20, 19, 21, 5}, 0.001, {0.1, 0.1, 0.1, 5}};
  const MergedFacts merged = Merged(nodes);
  EXPECT_THAT(merged.differences,
              ElementsAre("c differs: the latency of a far change up of all GPUs is 40 ms, and the "
                          "median of 3 nodes is 12 ms"));
  EXPECT_THAT(
      merged.facts.switches,
      ElementsAre(SwitchFacts{Direction::kUp, true, true, {11, 9, 13, 10}, 30, {1, 1, 1, 15}},
                  nodes[0].switches[1]));
  EXPECT_EQ(merged.facts.interference, nodes[2].interference);
  EXPECT_EQ(merged.facts.energy_counter, nodes[1].energy_counter);
}

TEST(Merge, SmallFractionsDoNotDiffer) {
  auto nodes = NodesThatBlockAt({80, 80, 80});
  const double slowdowns[] = {0.001, 0.002, 0.009};
  for (std::size_t i = 0; i < 3; ++i) {
    nodes[i].interference = {{"launch", 10, 0, {slowdowns[i], slowdowns[i], slowdowns[i], 5}}};
  }
  EXPECT_THAT(Merged(nodes).differences, IsEmpty());
  nodes[2].interference[0].slowdown = {0.05, 0.05, 0.05, 5};
  EXPECT_THAT(
      Merged(nodes).differences,
      ElementsAre("c differs: the slowdown of \"launch\" at 10 changes and 0 reads a second "
                  "is 5 %, and the median of 3 nodes is 0.2 %"));
}

// Facts of the kind are used on this node, too.
TEST(Merge, ANodeThatBearsFewerChangesLimitsAll) {
  auto nodes = NodesThatBlockAt({80, 80, 80});
  for (HardwareFacts& node : nodes) node.max_changes_per_s = Estimate{100, 100, 100, 10};
  nodes[2].max_changes_per_s = Estimate{5, 5, 5, 10};
  const MergedFacts merged = Merged(nodes);
  EXPECT_EQ(merged.facts.max_changes_per_s->value, 5);
  EXPECT_THAT(merged.differences, ElementsAre(HasSubstr("c differs")));
}

TEST(Merge, TheRestIsCautious) {
  auto nodes = NodesThatBlockAt({80, 80, 80});
  nodes[0].max_changes_per_s = Estimate{50, 50, 100, 10};
  nodes[1].max_changes_per_s = Estimate{52, 52, 90, 10};
  nodes[0].range_lock_saves = true;
  nodes[1].range_lock_saves = false;
  nodes[2].driver_version = "550";
  nodes[2].gpu_count = 7;
  nodes[0].limits = {"One.", "Two."};
  nodes[1].limits = {"Two.", "Three."};
  const MergedFacts merged = Merged(nodes);
  EXPECT_EQ(merged.facts.max_changes_per_s, (Estimate{50, 50, 90, 20}));
  EXPECT_EQ(merged.facts.range_lock_saves, false);
  EXPECT_EQ(merged.facts.driver_version, "570");
  EXPECT_EQ(merged.facts.gpu_count, 8);
  EXPECT_THAT(merged.facts.limits, ElementsAre("One.", "Two.", "Three."));
  EXPECT_THAT(
      merged.differences,
      ElementsAre("c differs: its driver version is 550, and 2 of 3 nodes have 570",
                  "c differs: its number of GPUs is 7, and 2 of 3 nodes have 8",
                  "a differs: a range of locked clocks saves energy there, and not on every node"));
}

TEST(Merge, RefusesOtherKindsAndMergedFacts) {
  EXPECT_EQ(Merge({}).error().message, "no hardware facts to merge (name at least one file)");
  auto nodes = NodesThatBlockAt({80, 80});
  nodes[1].gpu_name = "H";
  EXPECT_EQ(Merge(nodes).error().message,
            "a has the GPU G, and b has the GPU H (merge only nodes of the same kind)");
  nodes = NodesThatBlockAt({80, 80});
  nodes[1].nodes = 4;
  EXPECT_EQ(Merge(nodes).error().message,
            "the facts of b are merged from 4 nodes already (merge the nodes' own files)");
}

}  // namespace
}  // namespace perseus::hardware_facts
