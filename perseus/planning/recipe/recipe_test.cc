// Tests of the results that all interfaces get from the recipe.
#include "perseus/planning/recipe/recipe.h"

#include <gmock/gmock.h>

#include <span>

#include "tests/support/planning_jobs.h"

namespace perseus::recipe {
namespace {

using Limit = ChangeRules::Limit;

// Time before the end of the straggler's iteration has no price. Suppose that a plan ended at the
// time of its own least energy. Then it would wait for the rest, and would need more energy than a
// plan that uses this time.
TEST(PlanForStraggler, WithALimitTakesTimeBeyondThatOfLeastEnergy) {
  const plan::Planner planner = MakePlanner(MakeSyntheticJob({}));
  const auto frontier = planner.ComputeFrontier();
  ASSERT_TRUE(frontier);
  const Nanoseconds least_energy = frontier->points[frontier->least_energy].time;
  const Nanoseconds time = (least_energy + frontier->points.back().time) / 2;
  constexpr int kMost = 2;
  const auto plan = PlanForStraggler(planner, {.limit = Limit::kGiven, .most_changes = kMost},
                                     planner.baseline(), time, "straggler");
  ASSERT_TRUE(plan) << plan.error().Message();
  EXPECT_LE(few_switches::MostSwitches(plan->evaluation), kMost);
  EXPECT_LE(plan->evaluation.time, time);
  const double energy_j = planner.EnergyUntil(time, plan->evaluation);
  EXPECT_GE(energy_j, plan->lower_bound_j);
  const auto early = few_switches::PlanFewSwitches(planner, time, std::span(&kMost, 1));
  ASSERT_TRUE(early) << early.error().Message();
  EXPECT_LT(energy_j, 0.99 * planner.EnergyUntil(time, early->front().plan->evaluation));
}

// The rules of a job, without the sizes of jobs.
TEST(RulesWith, TheUserThenTheFileThenTheFacts) {
  const few_switches::ChangeLimit file{.most_changes = 5, .changes_per_s = 20};
  const few_switches::ChangeLimit facts{.changes_per_s = 20};
  EXPECT_EQ(RulesWith({}, file).known_limit().most_changes, 5);
  EXPECT_EQ(RulesWith({}, file).known_limit().changes_per_s, std::nullopt);
  EXPECT_EQ(RulesWith({}, facts).known_limit().changes_per_s, 20);
  EXPECT_TRUE(RulesWith({}, facts).picks());
  EXPECT_TRUE(RulesWith({.limit = Limit::kNone}, file).known_limit().IsNone());
  EXPECT_EQ(RulesWith({.limit = Limit::kGiven, .most_changes = 3}, file).known_limit().most_changes,
            3);
  const ChangeRules picked = RulesWith({.limit = Limit::kPick}, file);
  EXPECT_EQ(picked.known_limit().most_changes, std::nullopt);
  EXPECT_EQ(picked.known_limit().changes_per_s, 20);
}

}  // namespace
}  // namespace perseus::recipe
