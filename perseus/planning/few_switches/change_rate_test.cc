// Plans that keep a rate of clock changes: in time, within the limit, and with a bound that holds.
#include "perseus/planning/few_switches/change_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <span>

#include "tests/support/planning_jobs.h"
#include "tests/support/seeds.h"

namespace perseus::few_switches {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Le;

// Energies are sums of doubles.
constexpr double kSumRounding = 1e-9;

plan::Planner MakeRatePlanner(Nanoseconds switch_latency = 0) {
  return MakePlanner(MakeSyntheticJob({}), {kSyntheticBlockingPowerW, switch_latency});
}

plan::Plan PlanOf(const plan::Planner& planner, const plan::Target& target) {
  const plan::Frontier frontier = *planner.ComputeFrontier();
  return *plan::PlanForTarget(planner, &frontier, target);
}

// The rate that allows this many changes in an iteration of length `time`.
double RateFor(double changes, Nanoseconds time) { return changes / 0.95 / ToSeconds(time); }

TEST(MostChanges, LeavesATwentiethOfTheRate) {
  EXPECT_EQ(MostChanges(10, 400 * kMillisecond), 3);  // Rounded down from 0.95 * 10 * 0.4 = 3.8.
  EXPECT_EQ(MostChanges(0, 400 * kMillisecond), 0);
  EXPECT_EQ(MostChanges(1e300, 400 * kMillisecond), 1'000'000'000);
}

TEST(KeepChangeLimit, APlanThatKeepsItStays) {
  const plan::Planner planner = MakeRatePlanner();
  const plan::Plan plan = PlanOf(planner, {});
  const auto kept = KeepChangeLimit(planner, plan, {}, {.changes_per_s = 1e6});
  ASSERT_TRUE(kept) << kept.error().Message();
  EXPECT_EQ(kept->most_changes, std::nullopt);
  EXPECT_EQ(kept->plan.options, plan.options);
  EXPECT_EQ(kept->plan.target, "no slowdown");
}

void ExpectKept(const plan::Planner& planner, const plan::Plan& plan, int most) {
  SCOPED_TRACE(most);
  const auto kept = KeepChangeLimit(planner, plan, {},
                                    {.changes_per_s = RateFor(most + 0.5, plan.evaluation.time)});
  ASSERT_TRUE(kept) << kept.error().Message();
  EXPECT_EQ(kept->most_changes, most);
  EXPECT_EQ(kept->plan.target,
            "no slowdown, at most " + std::to_string(most) + " switches per GPU");
  const plan::Evaluation evaluation =
      plan::Evaluator(planner.graph(), planner.model()).Evaluate(kept->plan.options);
  EXPECT_EQ(evaluation.energy_j, kept->plan.evaluation.energy_j);
  EXPECT_THAT(evaluation.pp_rank_switches, Each(Le(most)));
  EXPECT_LE(evaluation.time, planner.baseline().time);
  EXPECT_LE(evaluation.energy_j, planner.baseline().energy_j * (1 + kSumRounding));
  EXPECT_LE(kept->plan.lower_bound_j, evaluation.energy_j * (1 + kSumRounding));
  EXPECT_GE(kept->plan.lower_bound_j, plan.lower_bound_j * (1 - kSumRounding));
}

TEST(KeepChangeLimit, LimitsThePlan) {
  const plan::Planner planner = MakeRatePlanner();
  const plan::Plan plan = PlanOf(planner, {});
  for (const int most : {0, 2, 4}) ExpectKept(planner, plan, most);
}

TEST(KeepChangeLimit, LimitsThePlanUnderASwitchLatency) {
  const plan::Planner planner = MakeRatePlanner(2 * kMillisecond);
  const plan::Plan plan = PlanOf(planner, {});
  for (const int most : {0, 2, 4}) ExpectKept(planner, plan, most);
}

// With the limit, a plan with the same energy or power needs more time.
TEST(KeepChangeLimit, MeetsABudgetAndACap) {
  const plan::Planner planner = MakeRatePlanner();
  const plan::Evaluation& baseline = planner.baseline();
  using Kind = plan::Target::Kind;
  const plan::Target budget{.kind = Kind::kEnergyBudget, .value = 0.9 * baseline.energy_j};
  const plan::Target cap{.kind = Kind::kPowerCap, .value = 0.85 * baseline.average_power_w()};
  for (const plan::Target& target : {budget, cap}) {
    SCOPED_TRACE(plan::Describe(target));
    const plan::Plan plan = PlanOf(planner, target);
    const auto kept =
        KeepChangeLimit(planner, plan, target,
                        {.changes_per_s = RateFor(2.5, plan.evaluation.time)}, {.effort = 0.1});
    ASSERT_TRUE(kept) << kept.error().Message();
    ASSERT_TRUE(kept->most_changes);
    EXPECT_THAT(kept->plan.evaluation.pp_rank_switches, Each(Le(*kept->most_changes)));
    if (target.kind == Kind::kEnergyBudget) {
      EXPECT_LE(kept->plan.evaluation.energy_j, target.value);
    } else {
      EXPECT_LE(kept->plan.evaluation.average_power_w(), target.value);
    }
    EXPECT_GE(kept->plan.deadline, plan.deadline);
  }
}

// A plan for a time needs this energy and this power. So a plan for the energy or the power need
// not take much longer.
TEST(KeepChangeLimit, ABudgetAndACapUnderASwitchLatencyTakeLittleMoreThanTheTimeThatTheyNeed) {
  const plan::Planner planner = MakeRatePlanner(25 * kMillisecond);
  using Kind = plan::Target::Kind;
  constexpr int kMost = 2;
  for (const double slowdown : {1.04, 1.1}) {
    const auto time =
        static_cast<Nanoseconds>(slowdown * static_cast<double>(planner.baseline().time));
    const auto known = PlanFewSwitches(planner, time, std::span(&kMost, 1), {}, {.effort = 0.1});
    ASSERT_TRUE(known && known->front().plan);
    const plan::Evaluation& evaluation = known->front().plan->evaluation;
    for (const plan::Target& target :
         {plan::Target{.kind = Kind::kEnergyBudget, .value = evaluation.energy_j},
          plan::Target{.kind = Kind::kPowerCap, .value = evaluation.average_power_w()}}) {
      SCOPED_TRACE(plan::Describe(target));
      const auto kept = KeepChangeLimit(planner, PlanOf(planner, target), target,
                                        {.most_changes = kMost}, {.effort = 0.1});
      ASSERT_TRUE(kept) << kept.error().Message();
      EXPECT_TRUE(plan::IsWithin(target, kept->plan.evaluation));
      EXPECT_LE(MostSwitches(kept->plan.evaluation), kMost);
      EXPECT_LE(ToSeconds(kept->plan.evaluation.time), 1.006 * ToSeconds(evaluation.time));
    }
  }
}

// Without a limit, the plan has two clocks. At one clock, only the slowest one meets the cap. It
// needs more effective energy than the fast one, so it is not useful, and the search within a limit
// does not have it.
TEST(KeepChangeLimit, TheLeastPowerMayNeedAClockThatIsNotUseful) {
  std::vector<schedule::OptionSet> sets(2);
  for (schedule::OptionSet& set : sets) {
    set.options = {{1400, {}, 10 * kMillisecond, 5, 1},
                   {1000, {}, 12 * kMillisecond, 4, 1},
                   {600, {}, 20 * kMillisecond, 6, 1}};
  }
  sets[1].options.erase(sets[1].options.begin() + 1);
  const plan::Planner planner = MakePlanner(MakeChain(std::move(sets)), {.blocking_power_w = 10});
  const plan::Target cap{.kind = plan::Target::Kind::kPowerCap, .value = 315};
  const auto kept = KeepChangeLimit(planner, PlanOf(planner, cap), cap, {.most_changes = 0});
  ASSERT_TRUE(kept) << kept.error().Message();
  EXPECT_LE(kept->plan.evaluation.average_power_w(), cap.value);
  EXPECT_EQ(MostSwitches(kept->plan.evaluation), 0);
  EXPECT_LE(kept->plan.lower_bound_j, kept->plan.evaluation.energy_j);
}

// Plans the target, with the plan without the limit and with the limit. Either the plan keeps the
// limit and the target, or the error states a value of the target that a plan keeps.
void ExpectKeptOrPossible(const plan::Planner& planner, const plan::Frontier& frontier,
                          plan::Target target, const ChangeLimit& limit) {
  SCOPED_TRACE(plan::Describe(target));
  const auto plan_for = [&](const plan::Target& one) -> Result<KeptPlan> {
    PERSEUS_ASSIGN_OR_RETURN(auto plan, plan::PlanForTarget(planner, &frontier, one));
    return KeepChangeLimit(planner, std::move(plan), one, limit, {.effort = 0.02});
  };
  auto kept = plan_for(target);
  // The first refusal may come from the plan without the limit, the second one from the limit.
  for (int refusals = 0; !kept && refusals < 2; ++refusals) {
    ASSERT_EQ(kept.error().kind, ErrorKind::kUnreachable) << kept.error().Message();
    std::smatch nearest;  // "the least found is 1234.5 W"
    const std::regex value("(?:is|takes) ([0-9.]+) [sJW]");
    const std::string message = kept.error().Message();
    ASSERT_TRUE(std::regex_search(message, nearest, value)) << message;
    target.value = std::stod(nearest[1]);
    kept = plan_for(target);
  }
  ASSERT_TRUE(kept) << kept.error().Message();
  const auto keeps = plan::CheckKeeps(planner, target, kept->plan);
  EXPECT_TRUE(keeps) << keeps.error().Message();
  EXPECT_LE(MostSwitches(kept->plan.evaluation),
            limit.most_changes ? *limit.most_changes
                               : MostChanges(*limit.changes_per_s, kept->plan.evaluation.time));
}

TEST(KeepChangeLimit, KeepsEveryTargetOrSaysWhatIsPossible) {
  for (const Nanoseconds latency : {Nanoseconds{0}, 2 * kMillisecond}) {
    const plan::Planner planner = MakePlanner(MakeSyntheticJob({.stages = 2, .microbatches = 3}),
                                              {kSyntheticBlockingPowerW, latency});
    const plan::Frontier frontier = *planner.ComputeFrontier();
    const plan::Evaluation fastest = PlanOf(planner, {}).evaluation;
    const plan::Evaluation least =
        PlanOf(planner, {.kind = plan::Target::Kind::kMinEnergy}).evaluation;
    for (const ChangeLimit& limit : {ChangeLimit{.most_changes = 0}, ChangeLimit{.most_changes = 4},
                                     ChangeLimit{.changes_per_s = RateFor(3.5, fastest.time)}}) {
      for (const double part : {-0.1, 0.0, 0.05, 0.5, 1.1}) {
        if (kIsSanitized && part != 0.05) continue;  // It runs the same code, and takes minutes.
        using Kind = plan::Target::Kind;
        const auto between = [&](double from, double to) { return from + part * (to - from); };
        for (const plan::Target& target :
             {plan::Target{.kind = Kind::kEnergyBudget,
             .value = between(fastest.energy_j, least.energy_j)},
              plan::Target{.kind = Kind::kPowerCap,
              .value = between(fastest.average_power_w(), least.average_power_w())},
              plan::Target{.kind = Kind::kDeadline,
              .value = between(ToSeconds(fastest.time), ToSeconds(least.time))}}) {
          ExpectKeptOrPossible(planner, frontier, target, limit);
        }
      }
    }
  }
}

// The target limits no time, so a longer time also meets it. No plan within the limit is as fast as
// the plan without a limit.
TEST(KeepChangeLimit, TargetsWithoutATimeTakeALongerOne) {
  const plan::Planner planner = MakeRatePlanner();
  plan::Plan plan = PlanOf(planner, {.kind = plan::Target::Kind::kEdp});
  plan.deadline = planner.least_time();
  const auto kept =
      KeepChangeLimit(planner, plan, {.kind = plan::Target::Kind::kEdp}, {.most_changes = 0});
  ASSERT_TRUE(kept) << kept.error().Message();
  EXPECT_EQ(MostSwitches(kept->plan.evaluation), 0);
}

// If a number of changes is given, it needs no rate, and replaces a given rate.
TEST(KeepChangeLimit, KeepsANumberOfChanges) {
  const plan::Planner planner = MakeRatePlanner();
  const plan::Plan plan = PlanOf(planner, {});
  const auto kept = KeepChangeLimit(planner, plan, {}, {.most_changes = 4, .changes_per_s = 1e6});
  ASSERT_TRUE(kept) << kept.error().Message();
  EXPECT_EQ(kept->most_changes, 4);
  EXPECT_EQ(kept->plan.target, "no slowdown, at most 4 switches per GPU");
  EXPECT_THAT(kept->plan.evaluation.pp_rank_switches, Each(Le(4)));
}

TEST(KeepChangeLimit, SaysThatNoPlanExists) {
  const plan::Planner planner = MakePlanner(MakeJobWithoutSharedClock(), {});
  const plan::Plan plan = PlanOf(planner, {});
  const auto rate = KeepChangeLimit(planner, plan, {}, {.changes_per_s = 0});
  ASSERT_FALSE(rate);
  EXPECT_EQ(rate.error().kind, ErrorKind::kUnreachable);
  EXPECT_THAT(rate.error().Message(),
              HasSubstr("no slowdown: found no plan with at most 0 switches per GPU, which 0 clock "
                        "changes per second and GPU allow"));
  const auto number = KeepChangeLimit(planner, plan, {}, {.most_changes = 0});
  ASSERT_FALSE(number);
  EXPECT_THAT(
      number.error().Message(),
      HasSubstr("no slowdown: found no plan with at most 0 switches per GPU, whatever its"));
}

}  // namespace
}  // namespace perseus::few_switches
