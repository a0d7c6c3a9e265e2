// Compares the mixed-integer program of bench/plan_milp with exhaustive search of tiny jobs, and
// our plans with the program.
#include "bench/plan_program.h"
#include "perseus/base/index.h"

#include <gtest/gtest.h>

#include "tests/support/planning_jobs.h"

namespace perseus {
namespace {

// CBC's results hold up to its tolerances: 1e-6 of a time or of an option of a few joules. Times
// are whole milliseconds, so a plan that is late by less than the tolerance is not late at all.
constexpr double kTolerance = 1e-6;

void CompareWithAll(const JobSpec& spec, std::uint64_t seed) {
  SCOPED_TRACE(seed);
  const Result<plan::Planner> planner =
      plan::Planner::Create(RandomJob(spec, seed), {RandomBlockingPower(seed), 0});
  ASSERT_TRUE(planner) << planner.error().message;
  const Nanoseconds slowest = frontier::EarliestTimes(
      planner->network(), frontier::Pace::kSlowest)[At(planner->network().sink)];
  for (const int part : {0, 4, 7, 10}) {
    const Nanoseconds deadline =
        planner->least_time() + (slowest - planner->least_time()) * part / 10;
    const auto best = SearchAll(planner->graph(), planner->model(), deadline);
    ASSERT_TRUE(best);
    const Result<plan::Plan> plan = planner->PlanFor(deadline);
    ASSERT_TRUE(plan) << plan.error().message;
    for (const bool from_plan : {false, true}) {
      ProgramLimits limits{.seconds = 20};
      if (from_plan) limits.start = plan->options;
      const ProgramOptimum optimum = SolvePlanProgram(*planner, deadline, limits);
      ASSERT_TRUE(optimum.proved);
      EXPECT_NEAR(optimum.energy_j, best->energy_j, kTolerance * best->energy_j);
      EXPECT_NEAR(optimum.lower_bound_j, best->energy_j, kTolerance * best->energy_j);
      const plan::Evaluation evaluation =
          plan::Evaluator(planner->graph(), planner->model()).Evaluate(optimum.options);
      EXPECT_LE(evaluation.time, deadline);
      EXPECT_NEAR(evaluation.energy_j, best->energy_j, kTolerance * best->energy_j);
      EXPECT_GE(optimum.energy_j, plan->lower_bound_j * (1 - kTolerance));
    }
  }
}

TEST(PlanProgram, AgreesWithExhaustiveSearchOfPipelines) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    CompareWithAll({.shape = JobShape::kPipeline,
                    .instructions = 8,
                    .options = 3,
                    .times = JobSpec::Times::kMilliseconds},
                   seed);
  }
}

TEST(PlanProgram, AgreesWithExhaustiveSearchOfGraphs) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    CompareWithAll({.instructions = 6, .times = JobSpec::Times::kMilliseconds}, seed);
  }
}

}  // namespace
}  // namespace perseus
