// Emulations of a pipeline so small that every number can be computed by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perseus/base/units.h"
#include "perseus/simulation/emulator/emulation.h"

namespace perseus::emulator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// F takes 1 s and B 2 s, both at 100 W. A rank that waits draws 10 W:
//
//   second   0   1   2   3   4   5   6   7   8   9
//   rank 0   |F0 |F1 |       |B0     |   |B1     |      busy 6 s, waits 3 s
//   rank 1       |F0 |B0     |F1 |B1     |              the same
//   power    110 200 110 110 200 200 110 110 110        1260 J
schedule::InstructionGraph MakeGraph() {
  schedule::InstructionGraph graph;
  for (const auto kind : {InstructionKind::kForward, InstructionKind::kBackward}) {
    const Nanoseconds time = kind == InstructionKind::kForward ? kSecond : 2 * kSecond;
    const double energy_j = 100 * ToSeconds(time);
    graph.option_sets.push_back(
        {.name = "",
         .kind = kind,
         .options = {{1400, {}, time, energy_j, 1}, {700, {}, 2 * time, 0.8 * energy_j, 1}}});
  }
  // F0 F1 of rank 0, F0 B0 F1 B1 of rank 1, B0 B1 of rank 0.
  graph.instructions = {{0, 0, 0}, {0, 0, 1}, {0, 1, 0}, {1, 1, 0},
                        {0, 1, 1}, {1, 1, 1}, {1, 0, 0}, {1, 0, 1}};
  graph.pp_rank_orders = {{0, 1, 6, 7}, {2, 3, 4, 5}};
  graph.pp_rank_names = {"rank 0", "rank 1"};
  graph.dependencies = {{0, 1, 0}, {1, 6, 0}, {6, 7, 0}, {2, 3, 0}, {3, 4, 0},
                        {4, 5, 0}, {0, 2, 0}, {1, 4, 0}, {3, 6, 0}, {5, 7, 0}};
  return graph;
}

class EmulationByHandTest : public testing::Test {
 protected:
  EmulationByHandTest() : planner_(*plan::Planner::Create(MakeGraph(), {10, 0})) {
    spec_.pipelines = 2;
    spec_.iterations = 1;
    spec_.options = schedule::BaselineOptions(planner_.graph());
  }

  Emulation Run() const {
    auto emulation = Emulate(planner_, spec_);
    EXPECT_TRUE(emulation) << emulation.error().Message();
    return *std::move(emulation);
  }

  plan::Planner planner_;
  EmulationSpec spec_;
};

TEST_F(EmulationByHandTest, Undisturbed) {
  const Emulation emulation = Run();
  EXPECT_EQ(emulation.time, 9 * kSecond);
  EXPECT_DOUBLE_EQ(emulation.energy_j, 2 * 1260);
  EXPECT_NEAR(emulation.iterations[0].peak_power_w, 2 * 200, 1e-9);
  EXPECT_DOUBLE_EQ(emulation.iterations[0].average_power_w(), 280);
  for (const auto& pipeline : emulation.pp_ranks) {
    for (const RankTotals& rank : pipeline) {
      EXPECT_DOUBLE_EQ(rank.busy_s, 6);
      EXPECT_DOUBLE_EQ(rank.instruction_energy_j, 600);
      EXPECT_DOUBLE_EQ(rank.blocking_energy_j, 30);
    }
  }
  EXPECT_TRUE(emulation.remarks.empty());
}

// Rank 1 of pipeline 1 takes twice as long, at the same power; pipeline 0 waits for 6 s:
//
//   second   0   1   2   3   4   5   6   7   8   9   10  11  12  13  14  15
//   rank 0   |F0 |F1 |                   |B0     |               |B1     |
//   rank 1       |F0     |B0             |F1     |B1             |
TEST_F(EmulationByHandTest, OneSlowRank) {
  spec_.disturbances = {
      {.kind = Disturbance::Kind::kSlow, .dp_rank = 1, .pp_rank = 1, .from = 0, .value = 2}};
  const Emulation emulation = Run();
  EXPECT_EQ(emulation.time, 15 * kSecond);
  EXPECT_EQ(emulation.iterations[0].slowest_dp_rank, 1);
  EXPECT_DOUBLE_EQ(emulation.energy_j, (1260 + 6 * 20) + (600 + 90) + (1200 + 30));
  EXPECT_DOUBLE_EQ(emulation.pp_ranks[0][1].blocking_energy_j, 90);
  EXPECT_DOUBLE_EQ(emulation.pp_ranks[1][1].busy_s, 12);
  EXPECT_DOUBLE_EQ(emulation.pp_ranks[1][1].instruction_energy_j, 1200);
  EXPECT_DOUBLE_EQ(emulation.pp_ranks[1][0].blocking_energy_j, 90);
  EXPECT_NEAR(emulation.peak_power_w(), 400, 1e-9);  // From 1 s to 2 s all are busy.
}

// From 4.5 s to 6 s, rank 1 is three times slower. In this time, only its B1 begins (at 5 s). It
// ends at 11 s. F1 began at 4 s, so it does not become slower.
TEST_F(EmulationByHandTest, AnEventWithinAnIterationAffectsInstructionsThatBeginMeanwhile) {
  spec_.iterations = 2;
  spec_.disturbances = {{.kind = Disturbance::Kind::kSlow,
                         .dp_rank = 0,
                         .pp_rank = 1,
                         .from = {0, 4'500'000'000},
                         .until = {0, 6 * kSecond},
                         .value = 3}};
  const Emulation emulation = Run();
  EXPECT_EQ(emulation.iterations[0].time, 13 * kSecond);
  EXPECT_DOUBLE_EQ(emulation.iterations[0].energy_j, (600 + 70) + (1000 + 30) + (1260 + 4 * 20));
  EXPECT_EQ(emulation.iterations[1].time, 9 * kSecond);
  EXPECT_TRUE(emulation.remarks.empty());
  const auto runs = RunsInIteration(planner_, spec_, emulation, 0);
  ASSERT_TRUE(runs);
  ASSERT_EQ(runs->size(), 2U);
  EXPECT_EQ(runs->front().run.evaluation.durations[5], 6 * kSecond);
  EXPECT_EQ(runs->front().run.evaluation.durations[4], kSecond);
}

// The event makes rank 1 of pipeline 0 three times slower: F0 takes 3 s and B0 6 s. It begins in
// iteration 0 and ends in iteration 1, in which F0 (at 1 s) and B0 (at 4 s) begin before its end.
TEST_F(EmulationByHandTest, AnEventAcrossIterationsAffectsBoth) {
  spec_.iterations = 3;
  spec_.disturbances = {{.kind = Disturbance::Kind::kSlow,
                         .dp_rank = 0,
                         .pp_rank = 1,
                         .from = {0, 4'500'000'000},
                         .until = {0, 17'500'000'000},
                         .value = 3}};
  const Emulation emulation = Run();
  std::vector<Nanoseconds> times;
  for (const EmulatedIteration& iteration : emulation.iterations) times.push_back(iteration.time);
  // Iteration 1: F0 at 1..4 s, B0 at 4..10 s (14 s + 3 s = 17 s of the job: slow), F1 at 10..11 s,
  // B1 at 11..13 s, B1 of rank 0 at 13..15 s.
  EXPECT_THAT(times, ElementsAre(13 * kSecond, 15 * kSecond, 9 * kSecond));
}

TEST_F(EmulationByHandTest, EventsWithoutEffectAreReported) {
  spec_.disturbances = {{.kind = Disturbance::Kind::kSlow,
                         .dp_rank = 0,
                         .from = {0, 4'200'000'000},
                         .until = {0, 4'800'000'000},
                         .value = 3,
                         .where = "events.toml:7"},
                        {.kind = Disturbance::Kind::kInput,
                         .dp_rank = 0,
                         .from = {0, kSecond},
                         .until = {0, 2 * kSecond},
                         .value = 3,
                         .where = "events.toml:8"},
                        {.kind = Disturbance::Kind::kThrottle,
                         .dp_rank = 1,
                         .from = 0,
                         .value = 500,
                         .where = "events.toml:9"}};
  spec_.changes = {{.from = 5, .options = spec_.options, .where = "events.toml:10"}};
  spec_.power_caps = {{.from = {0, kSecond},
                       .until = {0, 2 * kSecond},
                       .watts = 500,
                       .options = spec_.options,
                       .where = "events.toml:11"}};
  EXPECT_THAT(
      Run().remarks,
      ElementsAre(HasSubstr("events.toml:7: this straggler had no effect: no computation of its"),
                  HasSubstr("events.toml:8: this straggler had no effect: no iteration began"),
                  HasSubstr("events.toml:9: some instructions were not measured at 500 MHz or "
                            "less: they ran at their lowest clock (up to 700 MHz)"),
                  HasSubstr("events.toml:10: this plan was never in force"),
                  HasSubstr("events.toml:11: this power cap was never in force")));
}

// With all instructions at half the clock, an iteration takes 18 s and 960 + 2 * 6 * 10 = 1080 J:
// 60 W. At maximum frequency, it is 140 W. Only the slow plan keeps a cap of 200 W for two
// pipelines.
TEST_F(EmulationByHandTest, APowerCapHoldsUntilItEndsWhateverPlanIsPushed) {
  const std::vector<int> slow(8, 1);
  const auto fast = spec_.options;
  spec_.iterations = 6;
  spec_.power_caps = {{.from = 1, .until = 4, .watts = 200, .options = slow}};
  spec_.changes = {{.from = 2, .options = fast}};
  const Emulation emulation = Run();
  std::vector<double> powers;
  for (const auto& iteration : emulation.iterations) powers.push_back(iteration.average_power_w());
  EXPECT_THAT(powers, ElementsAre(280, 120, 120, 120, 280, 280));
  // A pushed plan that keeps to the cap runs.
  spec_.power_caps[0].watts = 280;
  EXPECT_DOUBLE_EQ(Run().iterations[3].average_power_w(), 280);
}

TEST_F(EmulationByHandTest, SlowdownsThatOverflowTogetherAreAnErrorThatNamesThem) {
  for (const char* where : {"e.toml:1", "e.toml:4", "e.toml:7", "e.toml:10"}) {
    spec_.disturbances.push_back(
        {.kind = Disturbance::Kind::kSlow, .dp_rank = 0, .value = 1000, .where = where});
  }
  const auto emulation = Emulate(planner_, spec_);
  ASSERT_FALSE(emulation);
  EXPECT_THAT(emulation.error().Message(),
              HasSubstr("e.toml:1, e.toml:4, e.toml:7 and 1 more: the durations of an iteration"));
  spec_.disturbances.resize(2);
  EXPECT_EQ(Run().time, 9'000'000 * kSecond);
  spec_.iterations = 1000;
  const auto longest = Emulate(planner_, spec_);
  ASSERT_FALSE(longest);
  EXPECT_THAT(longest.error().Message(), HasSubstr("1000 iterations take more than 36 years"));
}

// Makes fixed instructions with the same times, independent of clock and noise.
TEST_F(EmulationByHandTest, FixedInstructionsHaveNoNoise) {
  schedule::InstructionGraph graph = MakeGraph();
  for (schedule::OptionSet& set : graph.option_sets) {
    set.kind = InstructionKind::kOptimizer;
    set.options.resize(1);
  }
  const auto planner = plan::Planner::Create(graph, {10, 0});
  ASSERT_TRUE(planner) << planner.error().Message();
  spec_.noise.independent = 0.5;
  const auto emulation = Emulate(*planner, spec_);
  ASSERT_TRUE(emulation) << emulation.error().Message();
  EXPECT_EQ(emulation->time, 9 * kSecond);
  EXPECT_DOUBLE_EQ(emulation->energy_j, 2 * 1260);
  EXPECT_NE(Run().time, 9 * kSecond);
}

// An iteration takes 9 s, and a window is 1/256 of that. 11 days of waiting must not need memory
// for windows.
TEST_F(EmulationByHandTest, LongWaitsNeedNoMemory) {
  spec_.disturbances = {{.kind = Disturbance::Kind::kInput, .dp_rank = 0, .value = 1e6}};
  EXPECT_EQ(Run().time, 1'000'009 * kSecond);
}

}  // namespace
}  // namespace perseus::emulator
