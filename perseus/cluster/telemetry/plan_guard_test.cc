#include "perseus/cluster/telemetry/plan_guard.h"

#include <gtest/gtest.h>

namespace perseus::telemetry {
namespace {

constexpr double kLimit = 0.01;

StepTimes WithPlan(double ratio, double error = 0, int steps = 8) {
  return {.has_plans = true, .steps = steps, .ratio = ratio, .error = error};
}
StepTimes AtDefaultClocks(double ratio, double error = 0, int steps = 8) {
  return {.has_plans = false, .steps = steps, .ratio = ratio, .error = error};
}

TEST(PlanGuard, APlanThatKeepsItsPromiseIsNotTried) {
  EXPECT_FALSE(NextGuard({}, WithPlan(1.009), kLimit, 0));
  EXPECT_FALSE(NextGuard({}, WithPlan(1.5, 0, 7), kLimit, 0)) << "too few steps";
  EXPECT_FALSE(NextGuard({}, WithPlan(1.05, 0.03), kLimit, 0)) << "it may be noise";
  EXPECT_FALSE(NextGuard({}, AtDefaultClocks(1.5), kLimit, 0));
}

TEST(PlanGuard, APlanThatCostsThroughputIsTakenBack) {
  const auto trial = NextGuard({}, WithPlan(1.08), kLimit, 5);
  ASSERT_TRUE(trial);
  EXPECT_EQ(trial->state, store::GuardState::kTrial);
  EXPECT_EQ(trial->since, 5);
  EXPECT_FALSE(NextGuard(trial, WithPlan(1.08, 0, 14), kLimit, 6))
      << "these steps still have the plan";
  const auto withdrawn = NextGuard(trial, AtDefaultClocks(1.02), kLimit, 7);
  ASSERT_TRUE(withdrawn);
  EXPECT_EQ(withdrawn->state, store::GuardState::kWithdrawn);
  EXPECT_EQ(withdrawn->with_plan, 1.08);
  EXPECT_EQ(withdrawn->without_plan, 1.02);
  EXPECT_FALSE(NextGuard(withdrawn, AtDefaultClocks(1), kLimit, Milliseconds::Max()));
}

TEST(PlanGuard, AnOptimisticProfileIsNoFaultOfThePlan) {
  const auto trial = NextGuard({}, WithPlan(1.08), kLimit, 0);
  const auto cleared = NextGuard(trial, AtDefaultClocks(1.075), kLimit, 1);
  ASSERT_TRUE(cleared);
  EXPECT_EQ(cleared->state, store::GuardState::kCleared);
  EXPECT_FALSE(NextGuard(cleared, WithPlan(1.3), kLimit, kRetryGuardAfter)) << "too early";
  EXPECT_FALSE(NextGuard(cleared, WithPlan(1.085), kLimit, 2 + kRetryGuardAfter))
      << "not slower than in the trial";
  const auto again = NextGuard(cleared, WithPlan(1.3), kLimit, 2 + kRetryGuardAfter);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->state, store::GuardState::kTrial);
  EXPECT_EQ(again->without_plan, 0);
}

// The harm is 1.08 - 1.05 * 1.01 = 0.0195.
TEST(PlanGuard, ATrialOfNoisyStepsTakesMoreOfThem) {
  const auto trial = NextGuard({}, WithPlan(1.08, 0.01), kLimit, 0);
  EXPECT_FALSE(NextGuard(trial, AtDefaultClocks(1.05, 0.01, 8), kLimit, 0));
  EXPECT_EQ(NextGuard(trial, AtDefaultClocks(1.05, 0.01, kMostGuardSteps), kLimit, 0)->state,
            store::GuardState::kWithdrawn);
  EXPECT_EQ(NextGuard(trial, AtDefaultClocks(1.05, 0.02, kMostGuardSteps), kLimit, 0)->state,
            store::GuardState::kCleared)
      << "less than one standard error is no proof";
}

TEST(PlanGuard, SummarizesTimesRobustly) {
  const StepTimes even = SummarizeTimes({2, 2, 2, 2, 90}, 1.6);
  EXPECT_EQ(even.steps, 5);
  EXPECT_EQ(even.ratio, 1.25);
  EXPECT_EQ(even.error, 0);
  // The median is 3 and the median deviation is 1, so the error is 1.4826 * 1.2533 / sqrt(5) =
  // 0.831.
  EXPECT_NEAR(SummarizeTimes({1, 2, 3, 4, 5}, 1).error, 0.831, 0.001);
  EXPECT_EQ(SummarizeTimes({}, 1).steps, 0);
}

}  // namespace
}  // namespace perseus::telemetry
