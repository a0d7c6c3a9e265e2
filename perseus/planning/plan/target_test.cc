// Tests of PlanForTarget: it meets each target, or the error says what is possible.
#include "perseus/planning/plan/target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/planning_jobs.h"

namespace perseus::plan {
namespace {

using ::testing::HasSubstr;
using Kind = Target::Kind;

class TargetTest : public ::testing::Test {
 protected:
  Plan Reach(const Target& target) const {
    Result<Plan> plan = PlanForTarget(planner_, &frontier_, target);
    EXPECT_TRUE(plan) << plan.error().Message();
    if (!plan) return {};
    EXPECT_EQ(plan->target, Describe(target));
    EXPECT_LE(plan->evaluation.time, plan->deadline);
    EXPECT_GE(plan->evaluation.energy_j, plan->lower_bound_j * (1 - 1e-12));
    return *std::move(plan);
  }
  Error Refuse(const Target& target) const {
    const Result<Plan> plan = PlanForTarget(planner_, &frontier_, target);
    EXPECT_FALSE(plan) << Describe(target);
    return plan ? Error{} : plan.error();
  }
  static double LeastIn(const std::string& message) {
    const std::string before = "the least is ";
    const std::size_t place = message.find(before);
    EXPECT_NE(place, std::string::npos) << message;
    return std::stod(message.substr(place + before.size()));
  }
  const FrontierPoint& Cheapest() const { return frontier_.points[frontier_.least_energy]; }

  const Planner planner_ = MakePlanner(MakeSyntheticJob({.stages = 2, .microbatches = 6}));
  const Frontier frontier_ = *planner_.ComputeFrontier();
};

TEST_F(TargetTest, SlowdownIsRelativeToTheBaseline) {
  const Plan none = Reach({.kind = Kind::kSlowdown, .value = 0});
  EXPECT_LE(none.evaluation.time, planner_.baseline().time);
  EXPECT_EQ(none.deadline, planner_.baseline().time);
  const Plan five = Reach({.kind = Kind::kSlowdown, .value = 5});
  EXPECT_LE(static_cast<double>(five.evaluation.time),
            1.05 * static_cast<double>(planner_.baseline().time));
  EXPECT_LT(five.evaluation.energy_j, none.evaluation.energy_j);
}

// The check uses only the options and the deadline of the plan.
TEST_F(TargetTest, ACheckFindsAPlanThatMissesItsTarget) {
  const Plan fast = Reach({.kind = Kind::kSlowdown, .value = 0});
  Plan slow = Reach({.kind = Kind::kMinEnergy});
  const auto check = [&](const Target& target, const Plan& plan) {
    return CheckKeeps(planner_, target, plan);
  };
  EXPECT_TRUE(check({.kind = Kind::kSlowdown, .value = 0}, fast));
  EXPECT_TRUE(check({.kind = Kind::kMinEnergy}, slow));
  const double energy_j = fast.evaluation.energy_j;
  const double power_w = fast.evaluation.average_power_w();
  EXPECT_TRUE(check({.kind = Kind::kEnergyBudget, .value = energy_j}, fast));
  EXPECT_TRUE(check({.kind = Kind::kPowerCap, .value = power_w}, fast));
  slow.evaluation = fast.evaluation;
  const auto late = check({.kind = Kind::kSlowdown, .value = 0}, slow);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, ErrorKind::kSystem);
  EXPECT_THAT(late.error().Message(), HasSubstr("no slowdown: the plan takes"));
  EXPECT_FALSE(check({.kind = Kind::kEnergyBudget, .value = 0.999 * energy_j}, fast));
  EXPECT_FALSE(check({.kind = Kind::kPowerCap, .value = 0.999 * power_w}, fast));
  slow.deadline = fast.deadline;
  EXPECT_FALSE(check({.kind = Kind::kMinEnergy}, slow));
}

TEST_F(TargetTest, DeadlineIsInSeconds) {
  const double deadline_s = 1.1 * ToSeconds(planner_.baseline().time);
  const Plan plan = Reach({.kind = Kind::kDeadline, .value = deadline_s});
  EXPECT_LE(plan.evaluation.time, ToNanoseconds(deadline_s));
}

TEST_F(TargetTest, DeadlineBelowTheLeastTimeIsUnreachable) {
  const Error error = Refuse({.kind = Kind::kDeadline, .value = 0.01});
  EXPECT_EQ(error.kind, ErrorKind::kUnreachable);
  EXPECT_THAT(error.Message(), HasSubstr("least possible iteration time"));
}

TEST_F(TargetTest, AFastPlanMeetsTheEnergyBudget) {
  const double fastest_j = frontier_.points.front().bound_j;
  const double least_j = Cheapest().bound_j;
  for (const double part : {0.1, 0.5, 0.9}) {
    const double budget_j = least_j + part * (fastest_j - least_j);
    const Plan plan = Reach({.kind = Kind::kEnergyBudget, .value = budget_j});
    EXPECT_LE(plan.evaluation.energy_j, budget_j);
    // No faster plan meets the budget, except within the gap of plans (0.5 % here).
    const double sooner_j = frontier_.BoundAt(plan.evaluation.time) * 1.005;
    EXPECT_GE(sooner_j, budget_j);
  }
  const Plan easy = Reach({.kind = Kind::kEnergyBudget, .value = 10 * fastest_j});
  EXPECT_EQ(easy.evaluation.time, planner_.least_time());
}

TEST_F(TargetTest, TheErrorOfASmallEnergyBudgetHasTheLeastEnergy) {
  for (const double part : {0.5, 0.99, 0.999999}) {
    const Error error = Refuse({.kind = Kind::kEnergyBudget, .value = part * Cheapest().bound_j});
    EXPECT_EQ(error.kind, ErrorKind::kUnreachable);
    const double offered_j = LeastIn(error.Message());
    EXPECT_NEAR(offered_j, Cheapest().bound_j, 0.01 * Cheapest().bound_j);
    EXPECT_LE(Reach({.kind = Kind::kEnergyBudget, .value = offered_j}).evaluation.energy_j,
              offered_j);
  }
}

// A budget that the plan of least energy meets must be accepted, although it is above the lower
// bound.
TEST_F(TargetTest, BudgetsOfTheLeastEnergyPlanAreMet) {
  const Plan least = Reach({.kind = Kind::kMinEnergy});
  const double budget_j = least.evaluation.energy_j * (1 + 1e-9);
  EXPECT_LE(Reach({.kind = Kind::kEnergyBudget, .value = budget_j}).evaluation.energy_j, budget_j);
  const double cap_w = least.evaluation.average_power_w() * (1 + 1e-9);
  EXPECT_LE(Reach({.kind = Kind::kPowerCap, .value = cap_w}).evaluation.average_power_w(), cap_w);
}

TEST_F(TargetTest, APlanMeetsThePowerCap) {
  const auto power = [](const FrontierPoint& point) {
    return point.bound_j / ToSeconds(point.time);
  };
  const double most_w = power(frontier_.points.front());
  const double least_w = power(Cheapest());
  for (const double part : {0.1, 0.5, 0.9}) {
    const double cap_w = least_w + part * (most_w - least_w);
    const Plan plan = Reach({.kind = Kind::kPowerCap, .value = cap_w});
    EXPECT_LE(plan.evaluation.average_power_w(), cap_w);
  }
  const Plan easy = Reach({.kind = Kind::kPowerCap, .value = 10 * most_w});
  EXPECT_EQ(easy.evaluation.time, planner_.least_time());
}

TEST_F(TargetTest, TheErrorOfASmallPowerCapHasTheLeastPower) {
  for (const double cap_w : {1.0, 100.0}) {
    const Error error = Refuse({.kind = Kind::kPowerCap, .value = cap_w});
    EXPECT_EQ(error.kind, ErrorKind::kUnreachable);
    const double offered_w = LeastIn(error.Message());
    EXPECT_LE(Reach({.kind = Kind::kPowerCap, .value = offered_w}).evaluation.average_power_w(),
              offered_w);
  }
}

// A plan for another target may meet the budget and be faster. But it is faster only by the
// tolerance of the search and the granularity of plans.
TEST_F(TargetTest, NoPlanForAnotherTargetMeetsABudgetFaster) {
  std::vector<Plan> others;
  for (int percent = 0; percent <= 30; percent += 3) {
    others.push_back(Reach({.kind = Kind::kSlowdown, .value = static_cast<double>(percent)}));
  }
  const double fastest_j = frontier_.points.front().bound_j;
  for (int i = 1; i < 40; i += 3) {
    const double budget_j = Cheapest().bound_j * (1 - i / 40.0) + fastest_j * i / 40.0;
    const Plan plan = Reach({.kind = Kind::kEnergyBudget, .value = budget_j});
    for (const Plan& other : others) {
      if (other.evaluation.energy_j > budget_j) continue;
      EXPECT_GE(static_cast<double>(other.evaluation.time) * 1.003,
                static_cast<double>(plan.evaluation.time))
          << budget_j << " J, " << other.target;
    }
  }
}

// With a switch latency of a second, no plan meets the least time of the frontier.
TEST_F(TargetTest, MeetsGenerousTargetsUnderAnyLatency) {
  const Planner slow = MakePlanner(MakeSyntheticJob({.stages = 2, .microbatches = 6}),
                                   {kSyntheticBlockingPowerW, ToNanoseconds(1)});
  for (const Target& target : {Target{Kind::kEnergyBudget, 1e6}, Target{Kind::kPowerCap, 1e6},
                               Target{Kind::kEdp}, Target{Kind::kPrice, 0, 2}}) {
    const Result<Plan> plan = PlanForTarget(slow, &frontier_, target);
    EXPECT_TRUE(plan) << plan.error().Message();
  }
}

TEST_F(TargetTest, LeastEnergyNeedsNoFrontier) {
  const Target target{.kind = Kind::kMinEnergy};
  const Plan plan = Reach(target);
  EXPECT_NEAR(plan.lower_bound_j, Cheapest().bound_j, 1e-9 * Cheapest().bound_j);
  EXPECT_LE(plan.evaluation.time, Cheapest().time);
  const Result<Plan> same = PlanForTarget(planner_, nullptr, target);
  ASSERT_TRUE(same) << same.error().Message();
  EXPECT_EQ(same->options, plan.options);
}

// With few clock changes, a plan may need options that a plan without a limit never has. So it may
// take longer than every plan without a limit.
TEST_F(TargetTest, TheDeadlineOfLeastEnergyIsThatOfTheSlowestMeasuredOptions) {
  std::vector<int> slowest;
  for (const schedule::InstructionNode& instruction : planner_.graph().instructions) {
    const auto& options =
        planner_.graph().option_sets[static_cast<std::size_t>(instruction.option_set)].options;
    slowest.push_back(static_cast<int>(
        std::ranges::max_element(options, {}, &profile::Option::time) - options.begin()));
  }
  const Nanoseconds longest = Evaluator(planner_.graph(), planner_.model()).Evaluate(slowest).time;
  EXPECT_GT(longest, Cheapest().time);
  EXPECT_EQ(*DeadlineOf(planner_, nullptr, {.kind = Kind::kMinEnergy}), longest);
}

TEST_F(TargetTest, EnergyDelayProductIsTheLeastOfTheFrontier) {
  const Plan plan = Reach({.kind = Kind::kEdp});
  const double product = ToSeconds(plan.deadline) * frontier_.BoundAt(plan.deadline);
  for (const FrontierPoint& point : frontier_.points) {
    EXPECT_LE(product, ToSeconds(point.time) * point.bound_j * (1 + 1e-12));
  }
}

TEST_F(TargetTest, PriceIsTheLeastOfTheFrontier) {
  Nanoseconds former = std::numeric_limits<Nanoseconds>::max();
  for (const double gpu_hour : {0.0, 0.05, 0.2, 2.0, 1000.0}) {
    const Target target{.kind = Kind::kPrice, .value = 0.12, .gpu_hour = gpu_hour, .gpus = 16};
    const Plan plan = Reach(target);
    const auto dollars = [&](Nanoseconds time) {
      return frontier_.BoundAt(time) / 3.6e6 * 0.12 + ToSeconds(time) / 3600 * gpu_hour * 16;
    };
    for (const FrontierPoint& point : frontier_.points) {
      EXPECT_LE(dollars(plan.deadline), dollars(point.time) * (1 + 1e-12));
    }
    EXPECT_LE(plan.deadline, former) << "more expensive GPUs should not take longer";
    former = plan.deadline;
    if (gpu_hour == 0) {
      EXPECT_EQ(plan.deadline, Cheapest().time);
    }
    if (gpu_hour == 1000) {
      EXPECT_EQ(plan.deadline, planner_.least_time());
    }
  }
}

TEST_F(TargetTest, RefusesValuesOutOfRange) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const Kind kind :
       {Kind::kSlowdown, Kind::kDeadline, Kind::kEnergyBudget, Kind::kPowerCap, Kind::kPrice}) {
    for (const double value : {kNan, kInfinity, -1.0}) {
      EXPECT_EQ(Refuse({.kind = kind, .value = value}).kind, ErrorKind::kInput);
    }
  }
  for (const double gpu_hour : {kNan, kInfinity, -1.0}) {
    EXPECT_EQ(Refuse({.kind = Kind::kPrice, .value = 0.1, .gpu_hour = gpu_hour}).kind,
              ErrorKind::kInput);
  }
}

// These times do not fit 64 bits of nanoseconds.
TEST_F(TargetTest, RefusesTimesOutOfRange) {
  EXPECT_EQ(Refuse({.kind = Kind::kDeadline, .value = 1e12}).kind, ErrorKind::kInput);
  EXPECT_EQ(Refuse({.kind = Kind::kSlowdown, .value = 1e30}).kind, ErrorKind::kInput);
}

TEST_F(TargetTest, SomeTargetsNeedTheFrontier) {
  for (const Kind kind : {Kind::kEnergyBudget, Kind::kPowerCap, Kind::kEdp, Kind::kPrice}) {
    const Result<Plan> plan = PlanForTarget(planner_, nullptr, {.kind = kind, .value = 1});
    ASSERT_FALSE(plan);
    EXPECT_THAT(plan.error().Message(), HasSubstr("needs the frontier"));
  }
}

TEST(Describe, NamesTargetsInWords) {
  EXPECT_EQ(Describe({.kind = Kind::kSlowdown, .value = 0}), "no slowdown");
  EXPECT_EQ(Describe({.kind = Kind::kSlowdown, .value = 7.5}), "7.5 % slowdown");
  EXPECT_EQ(Describe({.kind = Kind::kDeadline, .value = 2.9}), "deadline 2.9 s");
  EXPECT_EQ(Describe({.kind = Kind::kEnergyBudget, .value = 5000}), "energy budget 5000 J");
  EXPECT_EQ(Describe({.kind = Kind::kPowerCap, .value = 1200}), "power cap 1200 W");
  EXPECT_EQ(Describe({.kind = Kind::kMinEnergy}), "least energy");
  EXPECT_EQ(Describe({.kind = Kind::kEdp}), "least energy-delay product");
  EXPECT_EQ(Describe({.kind = Kind::kPrice, .value = 0.12, .gpu_hour = 2}),
            "least cost at 0.12 $/kWh and 2 $/GPU-hour");
}

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
  // The next two plans take the same time.
  const Plan dear = MadePlan(kSecond, kSecond, 1040);
  EXPECT_EQ(BestPlan(budget, dear, {&own, 1}).evaluation.energy_j, 1000);
}

// With a switch latency, the search finds worse plans for some looser deadlines.
TEST(BestPlan, MoreTimeNeverNeedsMoreEnergy) {
  int improved = 0;
  for (const double latency_s : {0.005, 0.012, 0.03, 0.08}) {
    const Planner planner = MakePlanner(MakeSyntheticJob({.stages = 4, .microbatches = 6}),
                                        {kSyntheticBlockingPowerW, ToNanoseconds(latency_s)});
    std::vector<Target> targets;
    std::vector<Plan> plans;
    for (int percent = 0; percent <= 24; ++percent) {
      targets.push_back({.kind = Kind::kSlowdown, .value = static_cast<double>(percent)});
      Result<Plan> plan = PlanForTarget(planner, nullptr, targets.back(), {.effort = kFirstLook});
      ASSERT_TRUE(plan) << plan.error().Message();
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

TEST(TargetSearch, MakesThePlanOfPlanForTarget) {
  const Planner planner = MakePlanner(MakeSyntheticJob({}));
  const Frontier frontier = *planner.ComputeFrontier();
  const double middle_j = frontier.points[frontier.least_energy].bound_j * 1.05;
  for (const Target& target :
       {Target{.kind = Kind::kSlowdown, .value = 3}, Target{.kind = Kind::kMinEnergy},
        Target{.kind = Kind::kEdp}, Target{.kind = Kind::kPrice, .value = 0.1, .gpu_hour = 2},
        Target{.kind = Kind::kEnergyBudget, .value = middle_j}}) {
    SCOPED_TRACE(Describe(target));
    TargetSearch search(planner, &frontier, target);
    const Result<Plan> first = search.PlanWith({.effort = kFirstLook});
    ASSERT_TRUE(first) << first.error().Message();
    const Result<Plan> plan = search.PlanWith({});
    ASSERT_TRUE(plan) << plan.error().Message();
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

TEST(TargetSearch, NeverGetsWorseUnderALatency) {
  const Planner planner = MakePlanner(MakeSyntheticJob({}), {kSyntheticBlockingPowerW, 5'000'000});
  TargetSearch search(planner, nullptr, {.kind = Kind::kSlowdown, .value = 5});
  double last_j = planner.baseline().energy_j;
  for (const int effort : {kFirstLook, kUsualEffort, kFirstLook}) {
    const Result<Plan> plan = search.PlanWith({.effort = effort});
    ASSERT_TRUE(plan) << plan.error().Message();
    EXPECT_LE(plan->evaluation.energy_j, last_j);
    last_j = plan->evaluation.energy_j;
  }
}

TEST(TargetSearch, FailsAsPlanForTargetDoes) {
  const Planner planner = MakePlanner(MakeSyntheticJob({}));
  for (const Target& target :
       {Target{.kind = Kind::kDeadline, .value = 1e-6}, Target{.kind = Kind::kEdp},
        Target{.kind = Kind::kPowerCap, .value = 100}, Target{.kind = Kind::kSlowdown, .value = -1},
        Target{.kind = Kind::kDeadline, .value = 1e30}}) {
    SCOPED_TRACE(Describe(target));
    const Result<Plan> plan = TargetSearch(planner, nullptr, target).PlanWith({});
    const Result<Plan> direct = PlanForTarget(planner, nullptr, target);
    ASSERT_FALSE(plan);
    ASSERT_FALSE(direct);
    EXPECT_EQ(plan.error().Message(), direct.error().Message());
    EXPECT_EQ(plan.error().kind, direct.error().kind);
  }
}

}  // namespace
}  // namespace perseus::plan
