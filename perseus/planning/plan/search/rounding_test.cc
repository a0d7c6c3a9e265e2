// Tests of DiffuseRounding: an example by hand, and that it is never late on random jobs.
#include "perseus/planning/plan/search/rounding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perseus/base/index.h"
#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/plan/planner.h"
#include "tests/support/planning_jobs.h"
#include "tests/support/seeds.h"

namespace perseus::plan {
namespace {

using ::testing::ElementsAre;

// Three instructions in a row of 10, 20 or 30 ns.
schedule::InstructionGraph RoundingChain() {
  schedule::InstructionGraph graph;
  schedule::OptionSet set;
  set.options = {{3, {}, 10, 9.0, 1}, {2, {}, 20, 5.0, 1}, {1, {}, 30, 3.0, 1}};
  graph.option_sets = {set};
  graph.instructions = {{0, 0, 0}, {0, 0, 1}, {0, 0, 2}};
  graph.dependencies = {{0, 1, 0}, {1, 2, 0}};
  graph.pp_rank_orders = {{0, 1, 2}};
  graph.pp_rank_names = {"pp_rank 0"};
  return graph;
}

//   relaxed   |----17----|----17----|----17----|    51 ns
//   forward   |--10--|----20------|-----20-----|    the second uses the slack of the first
TEST(DiffuseRounding, PassesSlackOn) {
  const schedule::InstructionGraph graph = RoundingChain();
  const ChoiceGraph choices(graph, 0);
  const Windows windows{51, {0, 17, 34}, {17, 34, 51}};
  EXPECT_THAT(DiffuseRounding(choices, windows, TimeDirection::kForward), ElementsAre(0, 1, 1));
  EXPECT_THAT(DiffuseRounding(choices, windows, TimeDirection::kBackward), ElementsAre(1, 1, 0));
}

TEST(DiffuseRounding, KeepsDurationsThatAreOptions) {
  const schedule::InstructionGraph graph = RoundingChain();
  const ChoiceGraph choices(graph, 0);
  const Windows windows{60, {0, 10, 30}, {10, 30, 60}};
  EXPECT_THAT(DiffuseRounding(choices, windows, TimeDirection::kForward), ElementsAre(0, 1, 2));
  EXPECT_THAT(DiffuseRounding(choices, windows, TimeDirection::kBackward), ElementsAre(0, 1, 2));
}

TEST(DiffuseRoundingProperty, IsNeverLate) {
  for (std::uint64_t seed = 0; seed < Seeds(1000); ++seed) {
    SCOPED_TRACE(seed);
    const auto shape = seed % 2 == 0 ? JobShape::kPipeline : JobShape::kAnyOrder;
    const Result<Planner> planner = Planner::Create(
        RandomJob({.shape = shape, .instructions = 24}, seed), {RandomBlockingPower(seed), 0});
    ASSERT_TRUE(planner) << planner.error().message;
    const frontier::Network& network = planner->network();
    const auto least = planner->least_time();
    const auto slowest =
        frontier::EarliestTimes(network, frontier::Pace::kSlowest)[At(network.sink)];
    const Result<frontier::Solution> solution = frontier::SolveDeadline(
        network, least + (slowest - least) * static_cast<Nanoseconds>(seed % 11) / 10);
    ASSERT_TRUE(solution) << solution.error().message;
    const Windows windows = WindowsOf(network, *solution);
    ASSERT_EQ(windows.length, solution->time(network));
    const ChoiceGraph graph(planner->graph(), planner->model().blocking_power_w);

    const Choices forward = DiffuseRounding(graph, windows, TimeDirection::kForward);
    const std::vector<Nanoseconds> earliest = EarliestStarts(graph, forward);
    for (int i = 0; i < graph.instructions(); ++i) {
      EXPECT_LE(earliest[At(i)] + graph.candidates(i)[At(forward[At(i)])].time,
                windows.ends[At(i)]);
    }
    const Choices backward = DiffuseRounding(graph, windows, TimeDirection::kBackward);
    const std::vector<Nanoseconds> latest = LatestStarts(graph, backward, windows.length);
    for (int i = 0; i < graph.instructions(); ++i) {
      EXPECT_GE(latest[At(i)], windows.starts[At(i)]);
    }
    // It also needs no more energy than everything at its fastest.
    const Choices fastest(At(graph.instructions()), 0);
    EXPECT_LE(graph.EffectiveEnergy(forward), graph.EffectiveEnergy(fastest));
    EXPECT_LE(graph.EffectiveEnergy(backward), graph.EffectiveEnergy(fastest));
  }
}

}  // namespace
}  // namespace perseus::plan
