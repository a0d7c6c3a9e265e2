// Tests of the results that all interfaces get from the recipe.
#include "perseus/planning/recipe/recipe.h"

#include <gmock/gmock.h>

#include <algorithm>
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

// Between the least energy and the slow end of the frontier, a power cap has plans with any limit
// of clock changes. Each has a bound on plans that take as long.
TEST(PlanJob, APowerCapBelowTheLeastEnergyIsMetClosely) {
  const plan::Planner planner = MakePlanner(MakeSyntheticJob({}));
  const auto frontier = planner.ComputeFrontier();
  ASSERT_TRUE(frontier);
  const auto power_of = [](const plan::FrontierPoint& point) {
    return point.bound_j / ToSeconds(point.time);
  };
  const double fast_w = power_of(frontier->points[frontier->least_energy]);
  const double slow_w = power_of(frontier->points.back());
  ASSERT_LT(slow_w, 0.98 * fast_w) << "this job does not show the difference";
  for (const ChangeRules& changes : {ChangeRules{.limit = Limit::kNone}, ChangeRules{},
                                     ChangeRules{.limit = Limit::kGiven, .most_changes = 0},
                                     ChangeRules{.limit = Limit::kNone, .changes_per_s = 5}}) {
    for (const double part : {0.3, 0.7}) {
      const plan::Target cap{.kind = plan::Target::Kind::kPowerCap,
                             .value = slow_w + part * (fast_w - slow_w)};
      Progress silent;
      const auto plans = PlanJob(planner, {.targets = {cap}, .changes = changes}, silent);
      ASSERT_TRUE(plans) << plans.error().Message();
      const plan::Plan& plan = plans->Find(cap)->plan;
      EXPECT_LE(plan.evaluation.average_power_w(), cap.value);
      EXPECT_GT(plan.evaluation.average_power_w(), 0.98 * cap.value) << plan.target;
      EXPECT_GE(plan.evaluation.energy_j, plan.lower_bound_j * (1 - 1e-9));
      EXPECT_LT(plan.gap(), 0.05) << plan.target;
    }
  }
}

TEST(PlanJob, APowerCapThatNoPlanMeetsMayHaveTheNearestPlan) {
  const plan::Planner planner = MakePlanner(MakeSyntheticJob({}));
  for (const ChangeRules& changes : {ChangeRules{.limit = Limit::kNone}, ChangeRules{},
                                     ChangeRules{.limit = Limit::kGiven, .most_changes = 0}}) {
    plan::Target cap{.kind = plan::Target::Kind::kPowerCap, .value = 1};
    Progress silent;
    EXPECT_EQ(PlanJob(planner, {.targets = {cap}, .changes = changes}, silent).error().kind,
              ErrorKind::kUnreachable);
    cap.or_nearest = true;
    const auto nearest = PlanJob(planner, {.targets = {cap}, .changes = changes}, silent);
    ASSERT_TRUE(nearest) << nearest.error().Message();
    cap.value = nearest->Find(cap)->plan.evaluation.average_power_w() * (1 + 1e-9);
    cap.or_nearest = false;
    EXPECT_TRUE(PlanJob(planner, {.targets = {cap}, .changes = changes}, silent));
  }
}

plan::Plan PlanOf(const plan::Planner& planner, const plan::Target& target,
                  const ChangeRules& changes) {
  Progress silent;
  const auto plans = PlanJob(planner, {.targets = {target}, .changes = changes}, silent);
  EXPECT_TRUE(plans) << plans.error().Message();
  return plans->Find(target)->plan;
}

// A search for each of these targets would find plans that differ a little.
TEST(PlanJob, MoreTimeThanLeastEnergyTakesGivesTheSamePlanInEachRun) {
  plan::ExecutionModel model;
  model.switch_latency = 15 * kMillisecond;
  model.switch_cost.stall = 110'000;
  const plan::Planner planner = MakePlanner(MakeSyntheticJob({}), model);
  const plan::Target least{.kind = plan::Target::Kind::kMinEnergy};
  for (const ChangeRules& changes : {ChangeRules{}, ChangeRules{.limit = Limit::kNone}}) {
    const plan::Plan of_least = PlanOf(planner, least, changes);
    const auto longest = planner.CheapestPoint(0);
    ASSERT_TRUE(longest) << longest.error().Message();
    const Nanoseconds from = std::max(longest->time, of_least.evaluation.time);
    const double percent = 100 * (ToSeconds(from) / ToSeconds(planner.baseline().time) - 1);
    for (const double more : {0.1, 5.0, 40.0}) {
      const plan::Plan plan = PlanOf(planner, {.value = percent + more}, changes);
      EXPECT_EQ(plan.options, of_least.options) << more;
      EXPECT_GE(plan.evaluation.energy_j, plan.lower_bound_j * (1 - 1e-9));
    }
  }
}

// The relaxation knows no costs of changes. With costs that are worth no change, its bound is far
// below every plan.
TEST(PlanJob, TheBoundOfAPlanWithoutALimitCountsWhatChangesCost) {
  plan::ExecutionModel model;
  model.switch_cost.stall = 10 * kMillisecond;
  const plan::Planner planner = MakePlanner(MakeSyntheticJob({}), model);
  const plan::Plan plan = PlanOf(planner, {}, {.limit = Limit::kNone});
  EXPECT_GE(plan.evaluation.energy_j, plan.lower_bound_j * (1 - 1e-9));
  const auto relaxed = planner.BoundFor(plan.deadline);
  ASSERT_TRUE(relaxed) << relaxed.error().Message();
  const double relaxed_gap = plan.evaluation.energy_j / *relaxed - 1;
  EXPECT_LT(plan.gap(), 0.5 * relaxed_gap) << plan.gap() << " and " << relaxed_gap;
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
