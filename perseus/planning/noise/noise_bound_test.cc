#include "perseus/planning/noise/noise_bound.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <iterator>
#include <optional>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/planning/few_switches/change_rate.h"
#include "perseus/planning/noise/noise_margin.h"
#include "tests/support/planning_jobs.h"

namespace perseus::noise {
namespace {

plan::Planner SyntheticPlanner(const SyntheticJob& job) {
  return MakePlanner(MakeSyntheticJob(job));
}

Nanoseconds After(const plan::Planner& planner, double slowdown) {
  return static_cast<Nanoseconds>(static_cast<double>(planner.baseline().time) * (1 + slowdown));
}

constexpr double kNoSlowdown[] = {0};
// The error of the estimates, as a fraction of the energy.
constexpr double kError = 3e-4;

TEST(NoiseBound, PlansWithAMarginAreBelowAndNear) {
  for (const Noise noise : {Noise{.independent = 0.01}, Noise{.independent = 0.03},
                            Noise{.independent = 0.01, .common = 0.01}}) {
    const plan::Planner planner = SyntheticPlanner({.stages = 4, .microbatches = 12});
    constexpr double kSlowdowns[] = {0, 0.03, 0.1};
    const NoiseBound bound = ComputeNoiseBound(planner, noise, kSlowdowns);
    for (const double slowdown : kSlowdowns) {
      const plan::Plan plan = planner.PlanFor(After(planner, slowdown)).value();
      const NoisyDifference after = AddNoiseMargin(planner, plan, noise, slowdown).value().after;
      const double most = bound.MostSaving(after.slowdown);
      std::cout << fmt::format("noise {} and {}, {} % slowdown: {:.2f} %, at most {:.2f} %\n",
                               noise.independent, noise.common, 100 * slowdown, 100 * after.saving,
                               100 * most);
      EXPECT_LE(after.saving, most + kError);
      EXPECT_GT(after.saving, most - 0.006);
    }
  }
}

// Calls visit(options) for each plan with three options for each instruction, from the slowest to
// the fastest.
template <typename Visit>
void ForEachPlan(const schedule::InstructionGraph& graph, const Visit& visit) {
  constexpr int kChoices = 3;
  const auto plans = static_cast<int>(std::pow(kChoices, graph.instructions.size()));
  for (int plan = 0; plan < plans; ++plan) {
    std::vector<int> options;
    for (int i = 0, rest = plan; i < static_cast<int>(graph.instructions.size());
         ++i, rest /= kChoices) {
      const std::size_t count = graph.options_of(i).options.size();
      options.push_back(static_cast<int>((count - 1) * At(rest % kChoices) / (kChoices - 1)));
    }
    visit(options);
  }
}

TEST(NoiseBound, NoPlanOfASmallJobIsAbove) {
  const schedule::InstructionGraph graph = MakeSyntheticJob({.stages = 2, .microbatches = 2});
  const Noise noise{.independent = 0.05};
  const std::vector<int> baseline = schedule::BaselineOptions(graph);
  const schedule::SwitchCost cost{.stall = 5 * kMillisecond, .energy_j = 1};
  for (const plan::ExecutionModel& model :
       {plan::ExecutionModel{.blocking_power_w = kSyntheticBlockingPowerW},
        plan::ExecutionModel{.blocking_power_w = kSyntheticBlockingPowerW, .switch_cost = cost},
        plan::ExecutionModel{.blocking_power_w = kSyntheticBlockingPowerW,
        .switch_latency = 20 * kMillisecond}}) {
    const plan::Planner planner = MakePlanner(graph, model);
    const plan::Evaluator evaluator(graph, planner.model());
    const NoisyExecution execution(graph, planner.model(), noise, 400, 5);
    const NoiseBound of_any = ComputeNoiseBound(planner, noise, kNoSlowdown);
    // [changes] An iteration has two pp_ranks with four instructions each.
    std::vector<NoiseBound> bounds;
    for (int changes = 0; changes <= 4; ++changes) {
      bounds.push_back(ComputeNoiseBound(planner, noise, kNoSlowdown, {.most_changes = changes}));
    }
    std::vector<double> least(bounds.size(), 1);
    ForEachPlan(graph, [&](const std::vector<int>& options) {
      const auto changes = At(few_switches::MostSwitches(evaluator.Evaluate(options)));
      const NoisyDifference difference = execution.Compare(options, baseline);
      for (std::size_t n = changes; n < bounds.size(); ++n) {
        const double below = bounds[n].MostSaving(difference.slowdown) - difference.saving;
        EXPECT_GT(below, -kError) << n;
        least[n] = std::min(least[n], below);
      }
      EXPECT_GT(of_any.MostSaving(difference.slowdown) - difference.saving, -kError);
    });
    EXPECT_LT(*std::ranges::max_element(least), 0.006);
    EXPECT_LT(bounds[0].MostSaving(0.05), of_any.MostSaving(0.05) - 0.03);
  }
}

// With common noise, all plans of a single pp_rank become slower by the same factor. So samples do
// not show their differences.
TEST(NoiseBound, NoPlanOfOneRankIsAboveWithCommonNoise) {
  const plan::Planner planner = SyntheticPlanner({.stages = 1, .microbatches = 2});
  const Noise noise{.common = 0.1};
  const std::vector<int> baseline = schedule::BaselineOptions(planner.graph());
  const NoisyExecution execution(planner.graph(), planner.model(), noise, 100, 5);
  constexpr double kAsked[] = {0, 0.05, 0.1, 0.2};
  for (const std::optional<int> most_changes : {std::optional<int>(), std::optional(4)}) {
    const NoiseBound bound =
        ComputeNoiseBound(planner, noise, kAsked, {.most_changes = most_changes});
    double least = 1;
    ForEachPlan(planner.graph(), [&](const std::vector<int>& options) {
      const NoisyDifference difference = execution.Compare(options, baseline);
      least = std::min(least, bound.MostSaving(difference.slowdown) - difference.saving);
    });
    EXPECT_GT(least, -1e-5);
    EXPECT_LT(least, 0.01);
  }
}

// Without noise, the relaxation gives the exact optimum.
TEST(NoiseBound, WithoutNoiseItIsTheExactBound) {
  const plan::Planner planner = SyntheticPlanner({.stages = 4, .microbatches = 8});
  constexpr double kAsked[] = {0, 0.02};
  const NoiseBound bound = ComputeNoiseBound(planner, {}, kAsked);
  for (const double slowdown : {0.0, 0.02, 0.05, 0.2}) {
    const double exact_j = planner.BoundFor(After(planner, slowdown)).value();
    const double exact = 1 - exact_j / planner.baseline().energy_j;
    const bool is_asked = std::ranges::find(kAsked, slowdown) != std::end(kAsked);
    EXPECT_GE(bound.MostSaving(slowdown), exact - 1e-9);
    EXPECT_LE(bound.MostSaving(slowdown), exact + (is_asked ? 1e-6 : 0.01));
  }
}

TEST(NoiseBound, IsTheSameEachTime) {
  const plan::Planner planner = SyntheticPlanner({.stages = 2, .microbatches = 4});
  const auto most = [&] {
    return ComputeNoiseBound(planner, {.independent = 0.01}, kNoSlowdown).MostSaving(0);
  };
  EXPECT_EQ(most(), most());
}

}  // namespace
}  // namespace perseus::noise
