// Tests of BestPlan: plans for several targets never contradict each other.
#include "perseus/planning/plan/target.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/planning_jobs.h"

namespace perseus::plan {
namespace {

using Kind = Target::Kind;

Plan MadePlan(Nanoseconds deadline, Nanoseconds time, double energy_j) {
  Plan plan{.target = "own", .deadline = deadline, .options = {}, .evaluation = {}};
  plan.evaluation.time = time;
  plan.evaluation.energy_j = energy_j;
  plan.lower_bound_j = 0.9 * energy_j;
  return plan;
}

TEST(BestPlan, APlanForATighterDeadlineIsAPlanForALooserOne) {
  const Plan own = MadePlan(110 * kMillisecond, 110 * kMillisecond, 1259);
  const std::vector<Plan> others{MadePlan(105 * kMillisecond, 104 * kMillisecond, 1261),
                                 MadePlan(109 * kMillisecond, 109 * kMillisecond, 1254),
                                 MadePlan(120 * kMillisecond, 119 * kMillisecond, 1200)};
  const Plan best = BestPlan({.kind = Kind::kSlowdown, .value = 10}, own, others);
  EXPECT_EQ(best.evaluation.energy_j, 1254);
  EXPECT_EQ(best.deadline, own.deadline);
  EXPECT_EQ(best.lower_bound_j, own.lower_bound_j);
  EXPECT_EQ(best.target, "own");
}

TEST(BestPlan, EachTargetHasTheLeastOfWhatItMinimizes) {
  const Plan own = MadePlan(kSecond, kSecond, 1000);
  const std::vector<Plan> others{MadePlan(2 * kSecond, 2 * kSecond, 990),
                                 MadePlan(kSecond / 2, kSecond / 2, 1100)};
  EXPECT_EQ(BestPlan({.kind = Kind::kMinEnergy}, own, others).evaluation.energy_j, 990);
  EXPECT_EQ(BestPlan({.kind = Kind::kMinEnergy}, own, others).deadline, 2 * kSecond);
  EXPECT_EQ(BestPlan({.kind = Kind::kEdp}, own, others).evaluation.energy_j, 1100);
  EXPECT_EQ(BestPlan({.kind = Kind::kEdp}, own, others).deadline, kSecond / 2);
  const Target energy_only{.kind = Kind::kPrice, .value = 0.12, .gpu_hour = 0};
  EXPECT_EQ(BestPlan(energy_only, own, others).evaluation.energy_j, 990);
  const Target time_only{.kind = Kind::kPrice, .value = 0, .gpu_hour = 2};
  EXPECT_EQ(BestPlan(time_only, own, others).evaluation.energy_j, 1100);
  const Target budget{.kind = Kind::kEnergyBudget, .value = 1050};
  EXPECT_EQ(BestPlan(budget, own, others).evaluation.energy_j, 1000);
  const Target loose{.kind = Kind::kEnergyBudget, .value = 1100};
  EXPECT_EQ(BestPlan(loose, own, others).evaluation.energy_j, 1100);
  const Target cap{.kind = Kind::kPowerCap, .value = 500};
  EXPECT_EQ(BestPlan(cap, others[0], {&own, 1}).evaluation.energy_j, 990);
  // Two plans that take the same time.
  const Plan dear = MadePlan(kSecond, kSecond, 1040);
  EXPECT_EQ(BestPlan(budget, dear, {&own, 1}).evaluation.energy_j, 1000);
}

// With a switch latency, the search finds worse plans for some looser deadlines.
TEST(BestPlan, MoreTimeNeverNeedsMoreEnergy) {
  int improved = 0;
  for (const double latency_s : {0.005, 0.012, 0.03, 0.08}) {
    const Planner planner = *Planner::Create(MakeSyntheticJob({.stages = 4, .microbatches = 6}),
                                             {kSyntheticBlockingPowerW, ToNanoseconds(latency_s)});
    std::vector<Target> targets;
    std::vector<Plan> plans;
    for (int percent = 0; percent <= 24; ++percent) {
      targets.push_back({.kind = Kind::kSlowdown, .value = static_cast<double>(percent)});
      Result<Plan> plan = PlanForTarget(planner, nullptr, targets.back(), {.effort = kFirstLook});
      ASSERT_TRUE(plan) << plan.error().message;
      plans.push_back(*std::move(plan));
    }
    double former_j = planner.baseline().energy_j;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const Plan best = BestPlan(targets[i], plans[i], plans);
      EXPECT_LE(best.evaluation.energy_j, former_j);
      EXPECT_LE(best.evaluation.time, plans[i].deadline);
      EXPECT_LE(best.lower_bound_j, best.evaluation.energy_j * (1 + 1e-9));
      if (best.options != plans[i].options) ++improved;
      former_j = best.evaluation.energy_j;
    }
  }
  EXPECT_GT(improved, 0) << "these jobs do not show the defect";
}

}  // namespace
}  // namespace perseus::plan
