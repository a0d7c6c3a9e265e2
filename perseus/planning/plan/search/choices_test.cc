// Tests of ChoiceGraph: its candidates, its neighbors, and the two schedules.
#include "perseus/planning/plan/search/choices.h"

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

//   pp_rank 0   0 ----> 2     0: 10, 20 or 30 ns (30 ns costs more than 20 ns)
//                \     ^      1: 5 ns, fixed, 4 ns after 0
//   pp_rank 1     > 1 /       2: 10 or 20 ns
schedule::InstructionGraph Diamond() {
  schedule::InstructionGraph graph;
  schedule::OptionSet three;
  three.options = {{3, {}, 10, 9.0, 1}, {2, {}, 20, 5.0, 1}, {1, {}, 30, 6.0, 1}};
  schedule::OptionSet fixed;
  fixed.options = {{0, {}, 5, 1.0, 1}};
  schedule::OptionSet two;
  two.options = {{2, {}, 10, 4.0, 1}, {1, {}, 20, 3.0, 1}};
  graph.option_sets = {three, fixed, two};
  graph.instructions = {{0, 0, 0}, {1, 1, 0}, {2, 0, 0}};
  graph.dependencies = {{0, 2, 0}, {0, 1, 4}, {1, 2, 0}};
  graph.pp_rank_orders = {{0, 2}, {1}};
  graph.pp_rank_names = {"pp_rank 0", "pp_rank 1"};
  return graph;
}

TEST(ChoiceGraph, CandidatesAreUsefulOptionsFastestFirst) {
  const schedule::InstructionGraph graph = Diamond();
  const ChoiceGraph choices(graph, 0);
  ASSERT_EQ(choices.candidates(0).size(), 2U);  // 30 ns is slower and costs more than 20 ns.
  EXPECT_EQ(choices.candidates(0)[0].option, 0);
  EXPECT_EQ(choices.candidates(0)[1].option, 1);
  EXPECT_EQ(choices.candidates(0)[1].time, 20);
  EXPECT_EQ(choices.candidates(1).size(), 1U);

  // A waiting pp_rank draws 0.2 J/ns, so a difference of 10 ns is worth 2 J.
  const ChoiceGraph with_waiting(graph, 0.2e9);
  ASSERT_EQ(with_waiting.candidates(0).size(), 3U);
  EXPECT_DOUBLE_EQ(with_waiting.candidates(0)[1].effective_energy_j, 5.0 - 0.2 * 20);
}

TEST(ChoiceGraph, AddsEnergiesAndNamesOptions) {
  const schedule::InstructionGraph graph = Diamond();
  const ChoiceGraph choices(graph, 0.1e9);
  EXPECT_DOUBLE_EQ(choices.EffectiveEnergy({1, 0, 0}), (5 - 2.0) + (1 - 0.5) + (4 - 1.0));
  EXPECT_THAT(choices.Options({1, 0, 0}), ElementsAre(1, 0, 0));
}

TEST(ChoiceGraph, KnowsNeighborsBothWays) {
  const schedule::InstructionGraph graph = Diamond();
  const ChoiceGraph choices(graph, 0);
  ASSERT_EQ(choices.successors(0).size(), 2U);
  EXPECT_EQ(choices.successors(0)[1].instruction, 1);
  EXPECT_EQ(choices.successors(0)[1].delay, 4);
  EXPECT_EQ(choices.successors(0)[1].dependency, 1);
  ASSERT_EQ(choices.predecessors(2).size(), 2U);
  EXPECT_TRUE(choices.predecessors(0).empty());
  EXPECT_TRUE(choices.successors(2).empty());
}

TEST(ChoiceGraph, ComputesTheEarliestAndTheLatestStarts) {
  const schedule::InstructionGraph graph = Diamond();
  const ChoiceGraph choices(graph, 0);
  // 10 ns, a delay of 4, 5 ns, 20 ns: 39 ns.
  EXPECT_THAT(EarliestStarts(choices, {0, 0, 1}), ElementsAre(0, 14, 19));
  EXPECT_THAT(LatestStarts(choices, {0, 0, 1}, 39), ElementsAre(0, 14, 19));
  EXPECT_THAT(LatestStarts(choices, {0, 0, 1}, 50), ElementsAre(11, 25, 30));
}

TEST(ChoiceGraphProperty, EarliestStartsAreThoseOfTheEvaluator) {
  for (std::uint64_t seed = 0; seed < Seeds(300); ++seed) {
    const schedule::InstructionGraph graph = RandomJob({.instructions = 12}, seed);
    const ChoiceGraph choices(graph, RandomBlockingPower(seed));
    Choices chosen;
    for (int i = 0; i < choices.instructions(); ++i) {
      chosen.push_back(static_cast<int>((seed + 3 * At(i)) % choices.candidates(i).size()));
    }
    const Evaluation evaluation =
        Evaluator(graph, {RandomBlockingPower(seed), 0}).Evaluate(choices.Options(chosen));
    const std::vector<Nanoseconds> earliest = EarliestStarts(choices, chosen);
    const std::vector<Nanoseconds> latest = LatestStarts(choices, chosen, evaluation.time);
    EXPECT_EQ(earliest, evaluation.starts);
    for (std::size_t i = 0; i < earliest.size(); ++i) EXPECT_LE(earliest[i], latest[i]);
  }
}

// Three instructions in a row of 10, 20 or 30 ns.
schedule::InstructionGraph RoundingChain() {
  schedule::OptionSet set;
  set.options = {{3, {}, 10, 9.0, 1}, {2, {}, 20, 5.0, 1}, {1, {}, 30, 3.0, 1}};
  return MakeChain({set, set, set});
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
    ASSERT_TRUE(planner) << planner.error().Message();
    const frontier::Network& network = planner->network();
    const auto least = planner->least_time();
    const auto slowest = planner->SlowestTime();
    const Result<frontier::Solution> solution = frontier::SolveDeadline(
        network, least + (slowest - least) * static_cast<Nanoseconds>(seed % 11) / 10);
    ASSERT_TRUE(solution) << solution.error().Message();
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
    // The result also needs no more energy than all instructions at their fastest.
    const Choices fastest(At(graph.instructions()), 0);
    EXPECT_LE(graph.EffectiveEnergy(forward), graph.EffectiveEnergy(fastest));
    EXPECT_LE(graph.EffectiveEnergy(backward), graph.EffectiveEnergy(fastest));
  }
}

}  // namespace
}  // namespace perseus::plan
