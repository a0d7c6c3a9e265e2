#include "perseus/planning/noise/raised_segments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "perseus/planning/noise/noise_margin.h"
#include "tests/support/planning_jobs.h"

namespace perseus::noise {
namespace {

constexpr schedule::SwitchCost kDearSwitches{.stall = 5'000'000, .energy_j = 1};

plan::Planner PlannerWithDearSwitches() {
  return plan::Planner::Create(MakeSyntheticJob({}), {.blocking_power_w = kSyntheticBlockingPowerW,
                                                      .switch_cost = kDearSwitches})
      .value();
}

// Every pp_rank at one clock: that many measured clocks below the highest one.
plan::Plan AtOneClock(const plan::Planner& planner, std::size_t below) {
  plan::Plan plan;
  for (const schedule::InstructionNode& instruction : planner.graph().instructions) {
    const auto& options =
        planner.graph().option_sets[static_cast<std::size_t>(instruction.option_set)].options;
    std::vector<int> by_clock(options.size());
    std::iota(by_clock.begin(), by_clock.end(), 0);
    std::sort(by_clock.begin(), by_clock.end(), [&](int a, int b) {
      return options[static_cast<std::size_t>(a)].frequency_mhz >
             options[static_cast<std::size_t>(b)].frequency_mhz;
    });
    plan.options.push_back(by_clock[std::min(below, by_clock.size() - 1)]);
  }
  plan.evaluation = plan::Evaluator(planner.graph(), planner.model()).Evaluate(plan.options);
  plan.deadline = plan.evaluation.time;
  return plan;
}

int SwitchesOf(const plan::Evaluation& evaluation) {
  return std::accumulate(evaluation.pp_rank_switches.begin(), evaluation.pp_rank_switches.end(), 0);
}

TEST(RaiseSegments, MakesAPlanFasterWithoutMoreChanges) {
  const plan::Planner planner = PlannerWithDearSwitches();
  const plan::Plan plan = AtOneClock(planner, 12);
  const NoisyExecution execution(planner.graph(), planner.model(), {.independent = 0.01}, 50, 1);
  const double target_s = 0.98 * execution.Run(plan.options).time_s;
  std::vector<int> options = plan.options;
  ASSERT_TRUE(RaiseSegments(planner, execution, target_s, options));
  EXPECT_LE(execution.Run(options).time_s, target_s);
  EXPECT_EQ(SwitchesOf(plan::Evaluator(planner.graph(), planner.model()).Evaluate(options)), 0);
}

TEST(RaiseSegments, SaysThatATimeIsOutOfReach) {
  const plan::Planner planner = PlannerWithDearSwitches();
  const NoisyExecution execution(planner.graph(), planner.model(), {.independent = 0.01}, 50, 1);
  std::vector<int> options = AtOneClock(planner, 3).options;
  const double least_s = execution.Run(schedule::BaselineOptions(planner.graph())).time_s;
  EXPECT_FALSE(RaiseSegments(planner, execution, 0.9 * least_s, options));
}

// Single faster clocks would cost two changes each.
TEST(AddNoiseMargin, KeepsMostOfTheSavingUnderASwitchCost) {
  const plan::Planner planner = PlannerWithDearSwitches();
  const plan::Plan plan = AtOneClock(planner, 12);
  const double slowdown = 0.995 * ToSeconds(plan.deadline) / ToSeconds(planner.baseline().time) - 1;
  const NoisyPlan noisy = AddNoiseMargin(planner, plan, {.independent = 0.01}, slowdown).value();
  EXPECT_LE(noisy.after.slowdown, slowdown + 5e-4 + noisy.after.slowdown_ci);
  EXPECT_LE(SwitchesOf(noisy.plan.evaluation), 2);
  EXPECT_GT(noisy.after.saving, 0.9 * noisy.before.saving);
}

}  // namespace
}  // namespace perseus::noise
