#include "perseus/planning/recipe/switch_tradeoff.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "perseus/base/parallel.h"
#include "perseus/planning/few_switches/change_rate.h"
#include "perseus/planning/plan/target.h"

namespace perseus::recipe {
namespace {

constexpr int kTradeoffLimits[] = {0, 2, 3, 4, 6, 8, 12, 16};
constexpr int kFurtherLimits[] = {24, 32, kGreatestTradedLimit};

double SavingJ(const plan::Planner& planner, const plan::Plan& plan) {
  return planner.baseline().energy_j - plan.evaluation.energy_j;
}

// The picked limit has to keep this part of the saving without a limit.
constexpr double kKeptShare = 0.95;

// A saving below this is treated as no saving, and shows nothing about other targets.
double LeastSavingJ(const plan::Planner& planner) { return 1e-6 * planner.baseline().energy_j; }

// Returns an upper bound on the part of the saving of `unlimited` that a plan within the larger
// limits keeps. A few steps of the bound usually show that this part is too small. If not, more
// steps follow.
Result<double> MostKeptFurther(const plan::Planner& planner, const plan::Plan& unlimited,
                               few_switches::SwitchLimits limits) {
  const std::span<const int> largest = std::span(kFurtherLimits).last(1);
  double most_kept = 0;
  for (const double effort : {0.0, limits.effort}) {
    limits.effort = effort;
    PERSEUS_ASSIGN_OR_RETURN(const auto bounds, few_switches::BoundFewSwitches(
                                                    planner, unlimited.deadline, largest, limits));
    if (!bounds.front().best.exists) return 0;
    const double most_j = planner.baseline().energy_j - ToJoules(bounds.front().best.bound);
    most_kept = std::max(0.0, most_j / SavingJ(planner, unlimited));
    if (most_kept < kKeptShare) break;
  }
  return most_kept;
}

}  // namespace

void ShareBetterPlans(std::vector<PlannedTarget>& planned) {
  const std::vector<PlannedTarget> before = planned;
  for (PlannedTarget& one : planned) {
    // The bound of a target without a time comes from the plan, so it needs the same limit.
    const bool has_time = !plan::NeedsFrontier(one.target.kind);
    std::vector<plan::Plan> others;
    for (const PlannedTarget& other : before) {
      if (!MayTake(other.group, one.group)) continue;
      const int switches = few_switches::MostSwitches(other.plan.evaluation);
      const bool fits = has_time ? switches <= one.most_switches.value_or(switches)
                                 : other.most_switches == one.most_switches;
      if (fits) others.push_back(other.plan);
    }
    one.plan = plan::BestPlan(one.target, one.plan, others);
  }
}

bool Saves(const plan::Planner& planner, const plan::Plan& plan) {
  return SavingJ(planner, plan) > LeastSavingJ(planner);
}

PickedLimit PickLimit(const plan::Planner& planner, const SwitchTradeoff& tradeoff,
                      const std::optional<double>& most_changes_per_s) {
  PickedLimit picked;
  if (most_changes_per_s) {
    // The limit is for all targets. No target has less time than the shorter one of these two
    // times.
    const Nanoseconds least = std::min(tradeoff.unlimited.deadline, planner.baseline().time);
    picked.allowed = few_switches::MostChanges(*most_changes_per_s, least);
  }
  const auto saving_j = [&](const plan::Plan& plan) { return SavingJ(planner, plan); };
  double most_j = saving_j(tradeoff.unlimited);
  for (const few_switches::BudgetPlan& limited : tradeoff.limited) {
    if (limited.plan) most_j = std::max(most_j, saving_j(*limited.plan));
  }
  picked.saves = most_j > LeastSavingJ(planner);
  for (const few_switches::BudgetPlan& limited : tradeoff.limited) {
    if (!picked.saves || (picked.allowed && limited.most_changes > *picked.allowed)) break;
    if (limited.plan && saving_j(*limited.plan) >= kKeptShare * most_j) {
      picked.most_switches = limited.most_changes;
      picked.keeps_most = true;
      return picked;
    }
  }
  picked.most_switches = picked.allowed;
  return picked;
}

void ImproveUnderSwitchCost(const plan::Planner& planner, const std::stop_token& stop,
                            const std::stop_token& finish, std::vector<PlannedTarget>& planned) {
  if (planner.model().SwitchesAreFree()) return;
  // If switches have a latency but no cost, the plans are already good. The search within a limit
  // on changes is slow in this case. So it gets a quarter of the effort.
  const bool has_cost = !planner.model().switch_cost.IsNone();
  const double effort = has_cost ? 1 : 0.25;
  constexpr int kMost = kTradeoffLimits[std::size(kTradeoffLimits) - 1];
  ForEachOnAllCores(planned.size(), [&](std::size_t i) {
    plan::Plan& plan = planned[i].plan;
    if (stop.stop_requested() || finish.stop_requested()) return;
    if (plan::NeedsFrontier(planned[i].target.kind) || (planned[i].is_stop() && !has_cost)) return;
    const auto few = few_switches::PlanFewSwitches(
        planner, plan.deadline, std::span(&kMost, 1), std::span(&plan, 1),
        {.effort = effort, .stop = stop, .finish = finish});
    if (!few || !few->front().plan) return;  // Without such a plan, the given plan stays.
    const plan::Plan& found = *few->front().plan;
    if (found.evaluation.energy_j >= plan.evaluation.energy_j) return;
    plan.options = found.options;
    plan.evaluation = found.evaluation;
  });
  ShareBetterPlans(planned);
}

Result<std::vector<few_switches::BudgetBound>> BoundTradeoff(
    const plan::Planner& planner, Nanoseconds deadline, const few_switches::SwitchLimits& limits) {
  return few_switches::BoundFewSwitches(planner, deadline, kTradeoffLimits, limits);
}

Result<SwitchTradeoff> ComputeSwitchTradeoff(const plan::Planner& planner,
                                             const plan::Plan& unlimited,
                                             const few_switches::SwitchLimits& limits,
                                             std::vector<few_switches::BudgetBound> bounds) {
  SwitchTradeoff tradeoff{unlimited, {}};
  const auto add = [&](std::span<const int> budgets,
                       std::vector<few_switches::BudgetBound> of_budgets) -> Result<void> {
    std::vector<plan::Plan> known = {tradeoff.unlimited};
    for (const few_switches::BudgetPlan& limited : tradeoff.limited) {
      if (limited.plan) known.push_back(*limited.plan);
    }
    PERSEUS_ASSIGN_OR_RETURN(
        auto plans, few_switches::PlanFewSwitches(planner, unlimited.deadline, budgets, known,
                                                  limits, std::move(of_budgets)));
    for (few_switches::BudgetPlan& plan : plans) {
      // The bound without a limit is also valid for each limit.
      plan.lower_bound_j = std::max(plan.lower_bound_j, unlimited.lower_bound_j);
      if (plan.plan) plan.plan->lower_bound_j = plan.lower_bound_j;
      if (plan.plan && plan.plan->evaluation.energy_j < tradeoff.unlimited.evaluation.energy_j) {
        tradeoff.unlimited.options = plan.plan->options;
        tradeoff.unlimited.evaluation = plan.plan->evaluation;
      }
      tradeoff.limited.push_back(std::move(plan));
    }
    return {};
  };
  PERSEUS_RETURN_IF_ERROR(add(kTradeoffLimits, std::move(bounds)));
  tradeoff.was_interrupted = limits.finish.stop_requested();
  const PickedLimit picked = PickLimit(planner, tradeoff, std::nullopt);
  if (!picked.saves || picked.keeps_most || tradeoff.was_interrupted) return tradeoff;
  PERSEUS_ASSIGN_OR_RETURN(const double most_kept,
                           MostKeptFurther(planner, tradeoff.unlimited, limits));
  if (most_kept < kKeptShare) {
    tradeoff.most_kept_further = most_kept;
    return tradeoff;
  }
  PERSEUS_RETURN_IF_ERROR(add(kFurtherLimits, {}));
  tradeoff.was_interrupted = limits.finish.stop_requested();
  return tradeoff;
}

void TakeBetterPlans(const std::vector<PlannedTarget>& planned, SwitchTradeoff& tradeoff) {
  for (const PlannedTarget& one : planned) {
    if (one.plan.deadline != tradeoff.unlimited.deadline) continue;
    for (few_switches::BudgetPlan& limited : tradeoff.limited) {
      if (!one.most_switches || limited.most_changes < *one.most_switches) continue;
      const bool is_better =
          !limited.plan || one.plan.evaluation.energy_j < limited.plan->evaluation.energy_j;
      if (!is_better || one.plan.evaluation.time > one.plan.deadline) continue;
      limited.plan = one.plan;
      limited.plan->lower_bound_j = limited.lower_bound_j;
      limited.changes = one.plan.evaluation.pp_rank_switches;
      limited.is_searched = true;
    }
  }
}

}  // namespace perseus::recipe
