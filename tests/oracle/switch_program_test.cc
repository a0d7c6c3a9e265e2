// Compares plans with few clock changes, and their bounds, with a mixed-integer program.
#include "tests/oracle/switch_program.h"

#include <gtest/gtest.h>

#include "perseus/base/index.h"
#include "perseus/planning/few_switches/few_switches.h"
#include "tests/support/planning_jobs.h"

namespace perseus {
namespace {

constexpr int kBudgets[] = {0, 2, 3, 5};
// CBC's results hold up to its tolerances: 1e-6 of a time or of an option of a few joules.
constexpr double kCbcTolerance = 1e-6;
constexpr double kWithin = 0.001;

// Compares plans and bounds for all kBudgets and some deadlines.
void CompareWithProgram(const schedule::InstructionGraph& graph,
                        const plan::ExecutionModel& model) {
  const Result<plan::Planner> planner = plan::Planner::Create(graph, model);
  ASSERT_TRUE(planner) << planner.error().message;
  const Nanoseconds slowest = frontier::EarliestTimes(
      planner->network(), frontier::Pace::kSlowest)[At(planner->network().sink)];
  for (const int part : {0, 4}) {
    SCOPED_TRACE(part);
    const Nanoseconds deadline =
        planner->baseline().time + (slowest - planner->baseline().time) * part / 10;
    const auto plans = few_switches::PlanFewSwitches(*planner, deadline, kBudgets);
    ASSERT_TRUE(plans) << plans.error().message;
    for (const few_switches::BudgetPlan& found : *plans) {
      SCOPED_TRACE(found.most_changes);
      const ProgramOptimum optimum =
          SolveSwitchProgram(*planner, deadline, found.most_changes, 120);
      ASSERT_TRUE(optimum.proved);
      ASSERT_EQ(found.plan.has_value(), !optimum.options.empty());
      const plan::Evaluation best =
          plan::Evaluator(planner->graph(), planner->model()).Evaluate(optimum.options);
      EXPECT_NEAR(best.energy_j, optimum.energy_j, kCbcTolerance * optimum.energy_j);
      EXPECT_LE(found.lower_bound_j, optimum.energy_j * (1 + kCbcTolerance));
      EXPECT_LE(found.plan->evaluation.energy_j, optimum.energy_j * (1 + kWithin));
      EXPECT_GE(found.plan->evaluation.energy_j, optimum.lower_bound_j * (1 - kCbcTolerance));
    }
  }
}

// Two pp_ranks and up to six microbatches: 24 instructions, more than an exhaustive search covers.
JobSpec Pipeline() {
  return {.shape = JobShape::kPipeline,
          .instructions = 24,
          .options = 4,
          .times = JobSpec::Times::kMilliseconds};
}

TEST(SwitchProgram, AgreesWithPlansOfPipelines) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    SCOPED_TRACE(seed);
    CompareWithProgram(RandomJob(Pipeline(), seed),
                       {.blocking_power_w = RandomBlockingPower(seed)});
  }
}

TEST(SwitchProgram, AgreesWithPlansUnderASwitchCost) {
  for (std::uint64_t seed = 100; seed < 104; ++seed) {
    SCOPED_TRACE(seed);
    const schedule::InstructionGraph graph = RandomJob(Pipeline(), seed);
    const profile::Option& first = graph.options_of(0).options.front();
    CompareWithProgram(graph, {.blocking_power_w = RandomBlockingPower(seed),
                               .switch_latency = 0,
                               .switch_cost = {first.time / 10, first.energy_j / 50}});
  }
}

TEST(SwitchProgram, AgreesWithPlansOfGraphs) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(seed);
    CompareWithProgram(
        RandomJob({.instructions = 14, .times = JobSpec::Times::kMilliseconds}, seed),
        {.blocking_power_w = RandomBlockingPower(seed)});
  }
}

}  // namespace
}  // namespace perseus
