#include "perseus/planning/noise/noisy_execution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include "perseus/planning/plan/planner.h"
#include "tests/support/planning_jobs.h"

namespace perseus::noise {
namespace {

constexpr int kSamples = 4000;

// A chain of `length` instructions of 10 ms and 1 J on each of `pp_ranks` ranks.
schedule::InstructionGraph Chains(int pp_ranks, int length) {
  schedule::InstructionGraph graph;
  schedule::OptionSet set;
  set.name = "all";
  set.options.resize(1);
  set.options[0].frequency_mhz = 1000;
  set.options[0].time = 10'000'000;
  set.options[0].energy_j = 1;
  graph.option_sets.push_back(set);
  graph.pp_rank_orders.resize(static_cast<std::size_t>(pp_ranks));
  for (int rank = 0; rank < pp_ranks; ++rank) {
    for (int k = 0; k < length; ++k) {
      const int here = rank * length + k;
      graph.instructions.push_back({0, rank, -1});
      graph.pp_rank_orders[static_cast<std::size_t>(rank)].push_back(here);
      if (k > 0) graph.dependencies.push_back({here - 1, here, 0});
    }
  }
  return graph;
}

NoisyMean RunChains(int pp_ranks, int length, const Noise& noise) {
  const schedule::InstructionGraph graph = Chains(pp_ranks, length);
  const NoisyExecution execution(graph, {.blocking_power_w = 50}, noise, kSamples, 1);
  return execution.Run(std::vector<int>(graph.instructions.size(), 0));
}

TEST(NoisyExecution, AChainTakesTheSumOfTheMeans) {
  const NoisyMean mean = RunChains(1, 16, {.independent = 0.02});
  // The standard error is 2 % / sqrt(16 * 4000).
  EXPECT_NEAR(mean.time_s, 0.16, 0.16 * 5 * 0.02 / std::sqrt(16.0 * kSamples));
  EXPECT_NEAR(mean.energy_j, 16, 16 * 5 * 0.02 / std::sqrt(16.0 * kSamples));
  for (const double criticality : mean.criticality) EXPECT_NEAR(criticality, 1, 0.002);
}

// The mean of the larger of two normal variables is mean + deviation / sqrt(pi).
TEST(NoisyExecution, TheLongestOfTwoChainsIsLongerThanEach) {
  constexpr int kLength = 16;
  const NoisyMean mean = RunChains(2, kLength, {.independent = 0.02});
  const double deviation_s = 0.01 * 0.02 * std::sqrt(kLength);
  EXPECT_NEAR(mean.time_s, 0.16 + deviation_s / std::sqrt(std::numbers::pi),
              5 * deviation_s / std::sqrt(kSamples));
  EXPECT_NEAR(std::accumulate(mean.criticality.begin(), mean.criticality.end(), 0.0), kLength,
              0.01 * kLength);
  EXPECT_NEAR(mean.criticality[0], 0.5, 0.05);
}

TEST(NoisyExecution, CommonNoiseDoesNotAverageOutAlongAChain) {
  constexpr int kLength = 16;
  const NoisyMean mean = RunChains(2, kLength, {.common = 0.02});
  const double deviation_s = 0.01 * 0.02 * kLength;
  EXPECT_NEAR(mean.time_s, 0.16 + deviation_s / std::sqrt(std::numbers::pi),
              5 * deviation_s / std::sqrt(kSamples));
}

TEST(NoisyExecution, WithoutNoiseItIsTheEvaluation) {
  const schedule::InstructionGraph graph = MakeSyntheticJob({});
  const plan::ExecutionModel model{.blocking_power_w = kSyntheticBlockingPowerW};
  const std::vector<int> options = schedule::BaselineOptions(graph);
  const NoisyMean mean = NoisyExecution(graph, model, {}, 3, 1).Run(options);
  const plan::Evaluation evaluation = plan::Evaluator(graph, model).Evaluate(options);
  EXPECT_DOUBLE_EQ(mean.time_s, ToSeconds(evaluation.time));
  EXPECT_NEAR(mean.energy_j, evaluation.energy_j, 1e-9 * evaluation.energy_j);
}

// The two executions have the same samples, so the difference is exact to first order.
TEST(NoisyExecution, CriticalityIsTheDerivativeOfTheMeanTime) {
  schedule::InstructionGraph graph = MakeSyntheticJob({.stages = 3, .microbatches = 4});
  const plan::ExecutionModel model{.blocking_power_w = kSyntheticBlockingPowerW};
  const std::vector<int> options = schedule::BaselineOptions(graph);
  const Noise noise{.independent = 0.02, .common = 0.01};
  const NoisyMean before = NoisyExecution(graph, model, noise, 500, 1).Run(options);
  // One instruction gets an option set of its own, with a time that is 1 us longer.
  constexpr Nanoseconds kLonger = 1000;
  const std::size_t changed = graph.instructions.size() / 2;
  graph.option_sets.push_back(graph.options_of(static_cast<int>(changed)));
  graph.instructions[changed].option_set = static_cast<int>(graph.option_sets.size()) - 1;
  graph.option_sets.back().options[static_cast<std::size_t>(options[changed])].time += kLonger;
  const NoisyMean after = NoisyExecution(graph, model, noise, 500, 1).Run(options);
  EXPECT_GT(before.criticality[changed], 0.1);
  EXPECT_NEAR((after.time_s - before.time_s) / ToSeconds(kLonger), before.criticality[changed],
              0.02);
}

TEST(NoisyExecution, APlanDoesNotDifferFromItself) {
  const schedule::InstructionGraph graph = MakeSyntheticJob({});
  const NoisyExecution execution(graph, {}, {.independent = 0.03}, 100, 1);
  const std::vector<int> options = schedule::BaselineOptions(graph);
  const NoisyDifference difference = execution.Compare(options, options);
  EXPECT_EQ(difference.slowdown, 0);
  EXPECT_NEAR(difference.slowdown_ci, 0, 1e-12);
  EXPECT_EQ(difference.saving, 0);
}

// In 95 of 100 experiments, the interval covers the mean over many more samples.
TEST(NoisyExecution, IntervalsCoverTheMean) {
  const schedule::InstructionGraph graph = MakeSyntheticJob({});
  const plan::ExecutionModel model{.blocking_power_w = kSyntheticBlockingPowerW};
  const plan::Planner planner = MakePlanner(graph, model);
  const std::vector<int> baseline = schedule::BaselineOptions(graph);
  const std::vector<int> options = planner.PlanFor(planner.baseline().time).value().options;
  const Noise noise{.independent = 0.02};
  const NoisyDifference truth =
      NoisyExecution(graph, model, noise, 5000, 99).Compare(options, baseline);
  int covered = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const NoisyDifference one =
        NoisyExecution(graph, model, noise, 30, seed).Compare(options, baseline);
    if (std::abs(one.slowdown - truth.slowdown) <= one.slowdown_ci) ++covered;
  }
  EXPECT_GE(covered, 88);
}

}  // namespace
}  // namespace perseus::noise
