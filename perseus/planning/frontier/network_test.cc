#include "perseus/planning/frontier/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/make_network.h"

namespace perseus::frontier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kNoArc = -1;

// Instruction i lasts i + 1 to 10 * (i + 1) nanoseconds.
std::vector<profile::Curve> Curves(int count) {
  std::vector<profile::Curve> curves;
  for (Nanoseconds i = 1; i <= count; ++i)
    curves.push_back(profile::Curve{{i, 10 * i}, {1}, {}, 0});
  return curves;
}

Network Build(int instructions, const std::vector<schedule::Dependency>& dependencies) {
  return MakeNetwork(Curves(instructions), dependencies);
}

Arc ArcOf(const Network& network, int index) {
  return network.arcs[static_cast<std::size_t>(index)];
}

TEST(BuildNetwork, OneInstructionIsOneArc) {
  const Network network = Build(1, {});
  EXPECT_EQ(network.nodes, 2);
  ASSERT_EQ(network.arcs.size(), 1U);
  EXPECT_EQ(ArcOf(network, 0).tail, network.source);
  EXPECT_EQ(ArcOf(network, 0).head, network.sink);
}

//   s --0--> o --1--> o --2--> t
TEST(BuildNetwork, AChainNeedsNoArcsForItsDependencies) {
  const Network network = Build(3, {{0, 1}, {1, 2}});
  EXPECT_EQ(network.nodes, 4);
  EXPECT_EQ(network.arcs.size(), 3U);
  EXPECT_THAT(network.arc_of_dependency, ElementsAre(kNoArc, kNoArc));
  EXPECT_EQ(ArcOf(network, 0).head, ArcOf(network, 1).tail);
  EXPECT_EQ(ArcOf(network, 1).head, ArcOf(network, 2).tail);
}

//        ,--1--.
//   s -0-o      o-3- t        1 and 2 start when 0 ends. 3 starts when the later of both ends, and
//        `--2--'              the other may end at the same time.
TEST(BuildNetwork, ForksAndJoinsAreOneNodeEach) {
  const Network network = Build(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}});
  EXPECT_EQ(network.nodes, 4);
  EXPECT_EQ(network.arcs.size(), 4U);
}

//   s --0--> o --2--> t       3 waits for both 0 and 1, and both 2 and 3 wait for 0. So
//             `.              the end of 0 and the start of 3 are two nodes.
//   s --1----> o --3--> t
TEST(BuildNetwork, ADependencyBetweenTwoEventsIsAnArc) {
  const Network network = Build(4, {{0, 2}, {0, 3}, {1, 3}});
  EXPECT_EQ(network.nodes, 4);
  ASSERT_EQ(network.arcs.size(), 5U);
  EXPECT_THAT(network.arc_of_dependency, ElementsAre(kNoArc, 4, kNoArc));
  EXPECT_EQ(ArcOf(network, 4).tail, ArcOf(network, 0).head);
  EXPECT_EQ(ArcOf(network, 4).head, ArcOf(network, 3).tail);
  EXPECT_THAT(network.curve_of(ArcOf(network, 4)).times, ElementsAre(0));
  EXPECT_THAT(network.curve_of(ArcOf(network, 4)).slopes, ElementsAre());
}

//   s --0--> o ~7~> o --1--> o ~7~> o --2--> t
TEST(BuildNetwork, ADelayIsAnArcAndEqualDelaysShareACurve) {
  const Network network = Build(3, {{0, 1, 7}, {1, 2, 7}});
  EXPECT_EQ(network.nodes, 6);
  EXPECT_THAT(network.arc_of_dependency, ElementsAre(3, 4));
  EXPECT_EQ(ArcOf(network, 3).curve, ArcOf(network, 4).curve);
  EXPECT_THAT(network.curve_of(ArcOf(network, 3)).times, ElementsAre(7));
  EXPECT_EQ(network.instructions, 3);
}

// A graph may have a dependency twice, once with a delay and once without.
//   s --0--> o ==> o --1--> t
TEST(BuildNetwork, AcceptsADependencyTwice) {
  const Network network = Build(2, {{0, 1}, {0, 1}, {0, 1, 5}});
  EXPECT_EQ(network.nodes, 4);
  EXPECT_EQ(EarliestTimes(network, Pace::kFastest)[static_cast<std::size_t>(network.sink)],
            1 + 5 + 2);
}

TEST(BuildNetwork, SourceAndSinkAreTheFirstStartAndTheLastEnd) {
  const Network network = Build(3, {});  // Three independent instructions.
  EXPECT_EQ(network.nodes, 2);
  EXPECT_EQ(EarliestTimes(network, Pace::kSlowest)[static_cast<std::size_t>(network.sink)], 30);
}

TEST(BuildNetwork, TakesTheCurvesOfOptionSets) {
  schedule::InstructionGraph graph;
  graph.option_sets.resize(2);
  graph.instructions.resize(3);
  graph.instructions[0].option_set = 1;
  graph.instructions[1].option_set = 0;
  graph.instructions[2].option_set = 1;
  graph.dependencies = {{0, 1, 0}, {1, 2, 0}};
  const Result<Network> network = BuildNetwork(graph, Curves(2));
  ASSERT_TRUE(network);
  EXPECT_THAT(EarliestTimes(*network, Pace::kFastest), ElementsAre(0, 2, 3, 5));
}

TEST(BuildNetwork, AGraphWithoutInstructionsIsAnError) {
  const Result<Network> network = BuildNetwork({}, {}, {});
  ASSERT_FALSE(network);
  EXPECT_THAT(network.error().Message(), HasSubstr("no instructions"));
}

TEST(BuildNetwork, DurationsThatDoNotFitAreAnError) {
  constexpr Nanoseconds kMost = std::numeric_limits<Nanoseconds>::max() / 8;
  const std::vector<std::int32_t> two = {0, 0};
  const auto build = [&](Nanoseconds slowest,
                         const std::vector<schedule::Dependency>& dependencies) {
    return BuildNetwork(std::vector{profile::Curve{{1, slowest}, {1}, {}, 0}}, two, dependencies);
  };
  EXPECT_TRUE(build(kMost / 2, {}));
  const Result<Network> too_long = build(kMost / 2 + 1, {});
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().kind, ErrorKind::kInput);
  EXPECT_THAT(too_long.error().Message(), HasSubstr("36 years"));
  EXPECT_THAT(too_long.error().Message(), HasSubstr("are in seconds"));
  EXPECT_FALSE(build(kMost / 2, {{0, 1, 2}}));  // Delays count, too.
}

TEST(BuildNetwork, SlopesThatDoNotFitAreAnError) {
  const std::vector<std::int32_t> two = {0, 0};
  const auto build = [&](Microwatts steepest) {
    return BuildNetwork(std::vector{profile::Curve{{1, 2}, {steepest}, {}, 0}}, two, {});
  };
  EXPECT_TRUE(build(kMostPower / 2));
  const Result<Network> too_steep = build(kMostPower / 2 + 1);
  ASSERT_FALSE(too_steep);
  EXPECT_EQ(too_steep.error().kind, ErrorKind::kInput);
  EXPECT_THAT(too_steep.error().Message(), HasSubstr("576460752303 W"));
  EXPECT_THAT(too_steep.error().Message(), HasSubstr("are in joules"));
}

//        [1: 2..20]
//        ,---1---.
//   s -0-o        o-3- t      fastest 1 + max(2, 3) + 4, slowest ten times that
//        `---2---'
TEST(EarliestTimes, AreTheLongestPathsFromTheSource) {
  const Network network = Build(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}});
  for (const auto& [pace, factor] : {std::pair{Pace::kFastest, 1}, {Pace::kSlowest, 10}}) {
    const std::vector<Nanoseconds> times = EarliestTimes(network, pace);
    const auto at = [&](std::int32_t node) { return times[static_cast<std::size_t>(node)]; };
    EXPECT_EQ(at(network.source), 0);
    EXPECT_EQ(at(ArcOf(network, 0).head), 1 * factor);
    EXPECT_EQ(at(ArcOf(network, 3).tail), 4 * factor);
    EXPECT_EQ(at(network.sink), 8 * factor);
  }
}

}  // namespace
}  // namespace perseus::frontier
