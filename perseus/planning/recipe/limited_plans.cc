#include "perseus/planning/recipe/limited_plans.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

#include "perseus/base/parallel.h"
#include "perseus/planning/few_switches/change_rate.h"
#include "perseus/planning/plan/target.h"

namespace perseus::recipe {
namespace {

// A stop is between two targets that have plans already, so it needs less effort.
constexpr double kEffortOfStops = 0.5;

using LimitedPlans = std::vector<Result<few_switches::BudgetPlan>>;

// The limits that ClimbToLimit searches: each limit up to 16, and above 16 four limits between
// neighboring powers of 2.
std::vector<int> StepsTo(int most_switches) {
  std::vector<int> steps = {0};
  const auto distance = [](int step) {
    return step < 16 ? 1 : static_cast<int>(std::bit_floor(static_cast<unsigned>(step))) / 4;
  };
  for (int step = 2; step <= most_switches; step += distance(step)) steps.push_back(step);
  return steps;
}

// The effort of a step, relative to a search for one limit. With few changes, the best plans of
// neighboring limits differ much. With more changes, a search that starts from the plan of the
// previous step needs less effort.
double EffortOfStep(int most_switches) {
  if (most_switches == 0) return 0.25;
  return most_switches <= 4 ? 1 : 0.6;
}

// Returns the target with this slug, or null.
const PlannedTarget* Find(const std::vector<PlannedTarget>& planned, const std::string& slug) {
  const auto found = std::ranges::find(planned, slug, &PlannedTarget::slug);
  return found == planned.end() ? nullptr : &*found;
}

// Returns the plans of two targets of the table: the nearest ones before and after this target that
// have a plan.
std::vector<plan::Plan> NeighborsOf(std::size_t target, const std::vector<PlannedTarget>& planned,
                                    const LimitedPlans& plans) {
  const auto has_plan = [&](std::size_t i) {
    return !planned[i].is_stop() && plans[i] && plans[i]->plan;
  };
  std::vector<plan::Plan> neighbors;
  std::size_t before = target;
  while (before > 0 && !has_plan(before)) --before;
  if (has_plan(before)) neighbors.push_back(*plans[before]->plan);
  std::size_t after = target;
  while (after < plans.size() && !has_plan(after)) ++after;
  if (after < plans.size()) neighbors.push_back(*plans[after]->plan);
  return neighbors;
}

// Returns the plan within the limit for the target of `planned`. `starts` are plans for other
// deadlines.
Result<few_switches::BudgetPlan> LimitOne(const plan::Planner& planner,
                                          const PlannedTarget& planned, int most_switches,
                                          const few_switches::SwitchLimits& limits,
                                          const std::optional<SwitchTradeoff>& tradeoff,
                                          std::vector<plan::Plan> starts) {
  const plan::Plan& plan = planned.plan;
  // Another plan for the same deadline may exceed an energy budget or a power cap.
  if (plan::NeedsFrontier(planned.target.kind)) {
    PERSEUS_ASSIGN_OR_RETURN(
        auto kept, few_switches::KeepChangeLimit(planner, plan, planned.target,
                                                 {.most_changes = most_switches}, limits));
    return few_switches::BudgetPlan{most_switches, kept.plan.lower_bound_j, kept.plan,
                                    kept.plan.evaluation.pp_rank_switches};
  }
  starts.push_back(plan);
  // The plan of the trade-off is a good start for other deadlines, too.
  if (tradeoff) {
    for (const few_switches::BudgetPlan& known : tradeoff->limited) {
      if (known.most_changes != most_switches) continue;
      // If the trade-off found no plan, the plan of a smaller limit may be among the starts.
      if (!known.plan) continue;
      if (tradeoff->unlimited.deadline == plan.deadline) return known;
      starts.push_back(*known.plan);
    }
  }
  PERSEUS_ASSIGN_OR_RETURN(
      auto found, few_switches::PlanFewSwitches(planner, plan.deadline,
                                                std::span(&most_switches, 1), starts, limits));
  return std::move(found.front());
}

// Replaces `plan` by the other plan if the other plan is better. The other plan must keep the limit
// of `plan`, and its bound must be valid for this limit.
Result<void> KeepBetter(const plan::Planner& planner, const plan::Target& target,
                        const plan::Plan& other, int most_switches,
                        const few_switches::SwitchLimits& limits, plan::Plan& plan) {
  const bool same_deadline = other.deadline == plan.deadline;
  if (!same_deadline && !plan::NeedsFrontier(target.kind)) return {};
  plan::Plan better = plan::BestPlan(target, plan, std::span(&other, 1));
  if (same_deadline) {
    better.lower_bound_j = plan.lower_bound_j;
  } else if (better.options != plan.options) {
    // The target limits no time, so the other plan may have another time.
    PERSEUS_ASSIGN_OR_RETURN(const auto bounds,
                             few_switches::BoundFewSwitches(planner, better.deadline,
                                                            std::span(&most_switches, 1), limits));
    better.lower_bound_j = ToJoules(bounds.front().best.bound);
  }
  plan = std::move(better);
  return {};
}

// If the plan without a limit is better and keeps the limit of `plan`, replaces `plan` by it.
Result<void> KeepUnlimitedIfBetter(const plan::Planner& planner, const PlannedTarget& unlimited,
                                   int most_switches, const few_switches::SwitchLimits& limits,
                                   plan::Plan& plan) {
  if (few_switches::MostSwitches(unlimited.plan.evaluation) > most_switches) return {};
  return KeepBetter(planner, unlimited.target, unlimited.plan, most_switches, limits, plan);
}

// Turns plans within a smaller limit into plans within this limit, with the bounds for this limit.
Result<void> Loosen(const plan::Planner& planner, const std::vector<PlannedTarget>& unlimited,
                    int most_switches, const few_switches::SwitchLimits& limits,
                    std::vector<PlannedTarget>& limited) {
  std::vector<Result<void>> loosened(limited.size());
  ForEachOnAllCores(limited.size(), [&](std::size_t i) {
    loosened[i] = [&]() -> Result<void> {
      plan::Plan& plan = limited[i].plan;
      PERSEUS_ASSIGN_OR_RETURN(
          const auto bounds, few_switches::BoundFewSwitches(planner, plan.deadline,
                                                            std::span(&most_switches, 1), limits));
      plan.lower_bound_j = ToJoules(bounds.front().best.bound);
      const PlannedTarget& one = *Find(unlimited, limited[i].slug);
      PERSEUS_RETURN_IF_ERROR(KeepUnlimitedIfBetter(planner, one, most_switches, limits, plan));
      plan.target = few_switches::NameWithLimit(one.plan.target, most_switches);
      limited[i].most_switches = most_switches;
      return {};
    }();
  });
  for (const Result<void>& one : loosened) PERSEUS_RETURN_IF_ERROR(one);
  return {};
}

// The error names the fastest plan among `limited`, the plans of all targets.
tl::unexpected<Error> FailWithoutPlan(const plan::Plan& plan,
                                      const few_switches::BudgetPlan& without_plan,
                                      const LimitedPlans& limited) {
  std::optional<Nanoseconds> fastest;
  for (const Result<few_switches::BudgetPlan>& one : limited) {
    if (!one || !one->plan) continue;
    fastest = std::min(fastest.value_or(one->plan->evaluation.time), one->plan->evaluation.time);
  }
  const bool is_certain = std::isinf(without_plan.lower_bound_j);
  return FailAs(
      ErrorKind::kUnreachable,
      "{}: {}no plan with at most {} clock changes per GPU {}takes at most {:.6f} s{} (allow more "
      "changes or more time{})",
      plan.target, is_certain ? "" : "found ", without_plan.most_changes, is_certain ? "" : "that ",
      ToSeconds(plan.deadline),
      fastest ? fmt::format(": the fastest found takes {} s", plan::RoundedUp(ToSeconds(*fastest)))
              : "",
      is_certain ? ", or measure all instructions of a GPU at the same clocks" : "");
}

Result<std::vector<PlannedTarget>> ClimbOnce(const plan::Planner& planner,
                                             const std::vector<PlannedTarget>& planned,
                                             int most_switches,
                                             const few_switches::SwitchLimits& limits,
                                             const std::optional<SwitchTradeoff>& tradeoff) {
  const std::vector<int> steps =
      StepsTo(std::min(most_switches, few_switches::MostPossibleSwitches(planner.graph())));
  Result<std::vector<PlannedTarget>> limited;
  std::vector<PlannedTarget> below;
  for (const int step : steps) {
    few_switches::SwitchLimits of_step = limits;
    of_step.effort *= EffortOfStep(step);
    if (limits.finish.stop_requested()) {
      if (step != steps.back()) continue;
      of_step.effort *= kEffortAfterFinish;
      of_step.finish = {};
    }
    limited = LimitSwitches(planner, planned, step, of_step, tradeoff, WithoutPlan::kFail, below);
    if (limited) below = *limited;
    // If a target has no plan within a smaller limit, a run with that limit fails, too.
    if (!limited && limited.error().kind != ErrorKind::kUnreachable) return limited;
  }
  if (limited && steps.back() < most_switches) {
    PERSEUS_RETURN_IF_ERROR(Loosen(planner, planned, most_switches, limits, *limited));
  }
  return limited;
}

// Replaces each plan by the plan of `others` for the same target, if that plan is better. If
// `plans` lacks a stop of `others`, adds it.
Result<void> KeepBetterOf(const plan::Planner& planner, const std::vector<PlannedTarget>& others,
                          int most_switches, const few_switches::SwitchLimits& limits,
                          std::vector<PlannedTarget>& plans) {
  for (std::size_t i = 0; i < others.size(); ++i) {
    const auto own = std::ranges::find(plans, others[i].slug, &PlannedTarget::slug);
    if (own == plans.end()) {
      const auto place = std::min(i, plans.size());
      plans.insert(plans.begin() + static_cast<std::ptrdiff_t>(place), others[i]);
      continue;
    }
    PERSEUS_RETURN_IF_ERROR(
        KeepBetter(planner, own->target, others[i].plan, most_switches, limits, own->plan));
  }
  return {};
}

// Returns plans for the target of `start`, with `start` first, and then with more and more changes.
// Ends when a plan keeps KeptShare of the saving of `unlimited`, or at `allowed` changes. If none
// keeps it, the plan without a limit is the last one, if it has at most `allowed` changes.
Result<std::vector<PlannedTarget>> PlansWithMoreChanges(const plan::Planner& planner,
                                                        const PlannedTarget& start,
                                                        const PlannedTarget& unlimited, int allowed,
                                                        const few_switches::SwitchLimits& limits) {
  std::vector<PlannedTarget> plans = {start};
  const int of_unlimited = few_switches::MostSwitches(unlimited.plan.evaluation);
  const auto keeps_most = [&] {
    return SavingJ(planner, plans.back().plan) >=
           KeptShare(planner) * SavingJ(planner, unlimited.plan);
  };
  for (const int more : LimitsAbove(*start.most_switches)) {
    if (keeps_most() || more > allowed || more >= of_unlimited) break;
    PERSEUS_ASSIGN_OR_RETURN(auto next, LimitSwitches(planner, {unlimited}, more, limits, {},
                                                      WithoutPlan::kKeepUnlimited, {plans.back()}));
    plans.push_back(std::move(next.front()));
  }
  if (!keeps_most() && of_unlimited <= allowed) {
    plans.push_back(unlimited);
    plans.back().most_switches = of_unlimited;
    plans.back().plan.target = few_switches::NameWithLimit(unlimited.plan.target, of_unlimited);
  }
  return plans;
}

// A plan for less time may need less energy because it has more changes.
void TakePlansOfTighterTargets(const std::vector<PlannedTarget>& unlimited,
                               std::vector<PlannedTarget>& planned) {
  const std::vector<PlannedTarget> before = planned;
  for (PlannedTarget& one : planned) {
    for (const PlannedTarget& other : before) {
      if (!MayTake(other.group, one.group) || !one.most_switches || !other.most_switches) continue;
      if (*other.most_switches <= *one.most_switches || plan::NeedsFrontier(one.target.kind))
        continue;
      plan::Plan best = plan::BestPlan(one.target, one.plan, std::span(&other.plan, 1));
      if (best.options == one.plan.options) continue;
      one.most_switches = other.most_switches;
      one.plan = std::move(best);
      const plan::Plan& own = Find(unlimited, one.slug)->plan;
      one.plan.lower_bound_j = own.lower_bound_j;
      one.plan.target = few_switches::NameWithLimit(own.target, *one.most_switches);
    }
  }
}

}  // namespace

Result<void> RaiseLimits(const plan::Planner& planner, const std::vector<PlannedTarget>& unlimited,
                         double most_changes_per_s, const few_switches::SwitchLimits& limits,
                         std::vector<PlannedTarget>& planned) {
  std::vector<Result<void>> raised(planned.size());
  ForEachOnAllCores(planned.size(), [&](std::size_t i) {
    PlannedTarget& one = planned[i];
    if (!one.most_switches || one.is_stop() || plan::NeedsFrontier(one.target.kind)) return;
    const PlannedTarget& free = *Find(unlimited, one.slug);
    const int allowed = few_switches::MostChanges(most_changes_per_s, free.plan.evaluation.time);
    auto plans = PlansWithMoreChanges(planner, one, free, allowed, limits);
    if (!plans) {
      raised[i] = Fail(plans);
      return;
    }
    const bool is_followed = few_switches::MostSwitches(free.plan.evaluation) <= allowed;
    double most_j = is_followed ? SavingJ(planner, free.plan) : 0;
    for (const PlannedTarget& plan : *plans) most_j = std::max(most_j, SavingJ(planner, plan.plan));
    one = *std::ranges::find_if(*plans, [&](const PlannedTarget& plan) {
      return SavingJ(planner, plan.plan) >= std::min(most_j, KeptShare(planner) * most_j);
    });
  });
  for (const Result<void>& one : raised) PERSEUS_RETURN_IF_ERROR(one);
  TakePlansOfTighterTargets(unlimited, planned);
  return {};
}

Result<std::vector<PlannedTarget>> LimitSwitches(
    const plan::Planner& planner, std::vector<PlannedTarget> planned, int most_switches,
    const few_switches::SwitchLimits& limits, const std::optional<SwitchTradeoff>& tradeoff,
    WithoutPlan without_plan, const std::vector<PlannedTarget>& below) {
  const auto with_below = [&](std::size_t i, std::vector<plan::Plan> starts) {
    if (const PlannedTarget* one = Find(below, planned[i].slug)) starts.push_back(one->plan);
    return starts;
  };
  few_switches::SwitchLimits limits_of_stops = limits;
  limits_of_stops.effort *= kEffortOfStops;
  LimitedPlans limited(planned.size(), Fail("not planned"));
  // A stop starts from its neighbors in the table.
  for (const bool of_stops : {false, true}) {
    ForEachOnAllCores(planned.size(), [&](std::size_t i) {
      if (planned[i].is_stop() != of_stops) return;
      limited[i] = LimitOne(
          planner, planned[i], most_switches, of_stops ? limits_of_stops : limits, tradeoff,
          with_below(i, of_stops ? NeighborsOf(i, planned, limited) : std::vector<plan::Plan>()));
    });
  }
  std::vector<PlannedTarget> result;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    const bool has_plan = limited[i] && limited[i]->plan;
    if (!limited[i] && limited[i].error().kind != ErrorKind::kUnreachable) {
      return Fail(limited[i]);
    }
    if (!has_plan) {
      if (planned[i].is_stop()) continue;
      if (without_plan == WithoutPlan::kKeepUnlimited) {
        result.push_back(std::move(planned[i]));
        continue;
      }
      if (!planned[i].is_asked()) continue;
      if (!limited[i]) return Fail(limited[i]);
      return FailWithoutPlan(planned[i].plan, *limited[i], limited);
    }
    few_switches::BudgetPlan& found = *limited[i];
    if (const PlannedTarget* one = Find(below, planned[i].slug)) {
      PERSEUS_RETURN_IF_ERROR(
          KeepBetter(planner, planned[i].target, one->plan, most_switches, limits, *found.plan));
    }
    PERSEUS_RETURN_IF_ERROR(
        KeepUnlimitedIfBetter(planner, planned[i], most_switches, limits, *found.plan));
    found.plan->target = few_switches::NameWithLimit(planned[i].plan.target, most_switches);
    planned[i].plan = *std::move(found.plan);
    planned[i].most_switches = most_switches;
    result.push_back(std::move(planned[i]));
  }
  ShareBetterPlans(result);
  return result;
}

Result<std::vector<PlannedTarget>> ClimbToLimit(const plan::Planner& planner,
                                                const PlansOfEfforts& of_efforts, int most_switches,
                                                const few_switches::SwitchLimits& limits,
                                                const std::optional<SwitchTradeoff>& tradeoff) {
  Result<std::vector<PlannedTarget>> best = Fail("not planned");
  for (std::size_t effort = 0; effort < of_efforts.size(); ++effort) {
    if (best && limits.finish.stop_requested()) break;
    few_switches::SwitchLimits own = limits;
    own.searches = 1;
    own.first_search = static_cast<int>(effort);
    auto climbed = ClimbOnce(planner, of_efforts[effort], most_switches, own, tradeoff);
    if (!climbed && climbed.error().kind != ErrorKind::kUnreachable) return climbed;
    if (!climbed && best) continue;
    if (best) {
      PERSEUS_RETURN_IF_ERROR(KeepBetterOf(planner, *best, most_switches, limits, *climbed));
    }
    best = std::move(climbed);
  }
  return best;
}

Result<std::vector<PlannedTarget>> KeepChangeRate(const plan::Planner& planner,
                                                  std::vector<PlannedTarget> planned,
                                                  double changes_per_s,
                                                  const few_switches::SwitchLimits& limits,
                                                  WithoutPlan without_plan) {
  std::vector<Result<few_switches::KeptPlan>> kept(planned.size(), Fail("not planned"));
  ForEachOnAllCores(planned.size(), [&](std::size_t i) {
    kept[i] = few_switches::KeepChangeLimit(planner, planned[i].plan, planned[i].target,
                                            {.changes_per_s = changes_per_s}, limits);
  });
  std::vector<PlannedTarget> result;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    const bool is_unreachable = !kept[i] && kept[i].error().kind == ErrorKind::kUnreachable;
    const bool keeps = is_unreachable && without_plan == WithoutPlan::kKeepUnlimited;
    if (is_unreachable && !keeps && !planned[i].is_asked()) continue;
    if (!kept[i] && !keeps) return Fail(kept[i]);
    if (kept[i]) {
      planned[i].plan = std::move(kept[i]->plan);
      planned[i].most_switches = kept[i]->most_changes;
    }
    result.push_back(std::move(planned[i]));
  }
  ShareBetterPlans(result);
  return result;
}

}  // namespace perseus::recipe
