// Tests of TargetSearch: it makes the plans of PlanForTarget, soon and then better ones.
#include "perseus/planning/plan/target_search.h"

#include <gtest/gtest.h>

#include "tests/support/planning_jobs.h"

namespace perseus::plan {
namespace {

using Kind = Target::Kind;

class TargetSearchTest : public ::testing::Test {
 protected:
  Planner MakePlanner(Nanoseconds latency) const {
    return *Planner::Create(MakeSyntheticJob({}), {kSyntheticBlockingPowerW, latency});
  }
};

TEST_F(TargetSearchTest, MakesThePlanOfPlanForTarget) {
  const Planner planner = MakePlanner(0);
  const Frontier frontier = *planner.ComputeFrontier();
  const double middle_j = frontier.points[frontier.least_energy].bound_j * 1.05;
  for (const Target& target :
       {Target{.kind = Kind::kSlowdown, .value = 3}, Target{.kind = Kind::kMinEnergy},
        Target{.kind = Kind::kEdp}, Target{.kind = Kind::kPrice, .value = 0.1, .gpu_hour = 2},
        Target{.kind = Kind::kEnergyBudget, .value = middle_j}}) {
    SCOPED_TRACE(Describe(target));
    TargetSearch search(planner, &frontier, target);
    const Result<Plan> first = search.PlanWith({.effort = kFirstLook});
    ASSERT_TRUE(first) << first.error().message;
    const Result<Plan> plan = search.PlanWith({});
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_LE(CostOf(target, plan->evaluation), CostOf(target, first->evaluation));
    const Result<Plan> direct = PlanForTarget(planner, &frontier, target);
    ASSERT_TRUE(direct);
    EXPECT_LE(CostOf(target, plan->evaluation), CostOf(target, direct->evaluation));
    EXPECT_EQ(plan->target, direct->target);
    if (IsOneDeadline(target.kind)) {
      EXPECT_EQ(plan->options, direct->options);
      EXPECT_EQ(plan->lower_bound_j, direct->lower_bound_j);
      EXPECT_EQ(plan->deadline, direct->deadline);
    }
  }
}

TEST_F(TargetSearchTest, NeverGetsWorseUnderALatency) {
  const Planner planner = MakePlanner(5'000'000);
  TargetSearch search(planner, nullptr, {.kind = Kind::kSlowdown, .value = 5});
  double last_j = planner.baseline().energy_j;
  for (const int effort : {kFirstLook, kUsualEffort, kFirstLook}) {
    const Result<Plan> plan = search.PlanWith({.effort = effort});
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_LE(plan->evaluation.energy_j, last_j);
    last_j = plan->evaluation.energy_j;
  }
}

TEST_F(TargetSearchTest, FailsAsPlanForTargetDoes) {
  const Planner planner = MakePlanner(0);
  for (const Target& target :
       {Target{.kind = Kind::kDeadline, .value = 1e-6}, Target{.kind = Kind::kEdp},
        Target{.kind = Kind::kPowerCap, .value = 100}, Target{.kind = Kind::kSlowdown, .value = -1},
        Target{.kind = Kind::kDeadline, .value = 1e30}}) {
    SCOPED_TRACE(Describe(target));
    const Result<Plan> plan = TargetSearch(planner, nullptr, target).PlanWith({});
    const Result<Plan> direct = PlanForTarget(planner, nullptr, target);
    ASSERT_FALSE(plan);
    ASSERT_FALSE(direct);
    EXPECT_EQ(plan.error().message, direct.error().message);
    EXPECT_EQ(plan.error().kind, direct.error().kind);
  }
}

}  // namespace
}  // namespace perseus::plan
