#include "perseus/planning/recipe/switch_tradeoff.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "perseus/base/parallel.h"
#include "perseus/planning/few_switches/change_rate.h"
#include "perseus/planning/plan/target.h"

namespace perseus::recipe {
namespace {

constexpr int kTradeoffLimits[] = {0, 2, 3, 4, 6, 8, 12, 16};
constexpr int kFurtherLimits[] = {24, 32, kGreatestTradedLimit};

// A saving below this is treated as no saving, and shows nothing about other targets.
double LeastSavingJ(const plan::Planner& planner) { return 1e-6 * planner.baseline().energy_j; }

// The limit is for all targets. No target has less time than the shorter one of these two times.
int MostFollowed(const plan::Planner& planner, const plan::Plan& unlimited,
                 double most_changes_per_s) {
  return few_switches::MostChanges(most_changes_per_s,
                                   std::min(unlimited.deadline, planner.baseline().time));
}

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
    if (most_kept < KeptShare(planner)) break;
  }
  return most_kept;
}

}  // namespace

double KeptShare(const plan::Planner& planner) {
  constexpr double kIfCounted = 0.98;
  constexpr double kIfFree = 0.95;
  return planner.model().switch_cost.IsNone() ? kIfFree : kIfCounted;
}

double SavingJ(const plan::Planner& planner, const plan::Plan& plan) {
  return planner.baseline().energy_j - plan.evaluation.energy_j;
}

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
                      double most_changes_per_s) {
  const auto saving_j = [&](const plan::Plan& plan) { return SavingJ(planner, plan); };
  const int allowed = MostFollowed(planner, tradeoff.unlimited, most_changes_per_s);
  double most_j = saving_j(tradeoff.unlimited);
  const bool is_followed = few_switches::MostSwitches(tradeoff.unlimited.evaluation) <= allowed;
  double most_followed_j = is_followed ? most_j : 0;
  for (const few_switches::BudgetPlan& limited : tradeoff.limited) {
    if (!limited.plan) continue;
    most_j = std::max(most_j, saving_j(*limited.plan));
    if (limited.most_changes > allowed) continue;
    most_followed_j = std::max(most_followed_j, saving_j(*limited.plan));
  }
  const double share = KeptShare(planner);
  PickedLimit picked;
  picked.asked_share = share;
  picked.saves = most_j > LeastSavingJ(planner);
  if (!picked.saves) return picked;
  for (const few_switches::BudgetPlan& limited : tradeoff.limited) {
    if (limited.most_changes > allowed) break;
    if (!limited.plan || saving_j(*limited.plan) < share * most_followed_j) continue;
    picked.most_switches = limited.most_changes;
    picked.kept = saving_j(*limited.plan) / most_j;
    break;
  }
  // An early end says nothing about limits that were not searched.
  if (tradeoff.was_interrupted && !picked.keeps_most()) picked.most_switches.reset();
  return picked;
}

std::vector<int> LimitsAbove(int limit) {
  std::vector<int> limits(std::begin(kTradeoffLimits), std::end(kTradeoffLimits));
  limits.insert(limits.end(), std::begin(kFurtherLimits), std::end(kFurtherLimits));
  std::erase_if(limits, [&](int one) { return one <= limit; });
  return limits;
}

void ImproveUnderSwitchCost(const plan::Planner& planner, double effort,
                            const std::stop_token& stop, const std::stop_token& finish,
                            std::vector<PlannedTarget>& planned) {
  if (planner.model().SwitchesAreFree()) return;
  // If switches have a latency but no cost, the plans are already good. The search within a limit
  // on changes is slow in this case. So it gets a quarter of the effort.
  const bool has_cost = !planner.model().switch_cost.IsNone();
  if (!has_cost) effort /= 4;
  const bool is_finished = finish.stop_requested();
  if (is_finished) effort *= kEffortAfterFinish;
  constexpr int kMost = kTradeoffLimits[std::size(kTradeoffLimits) - 1];
  ForEachOnAllCores(planned.size(), [&](std::size_t i) {
    plan::Plan& plan = planned[i].plan;
    if (stop.stop_requested()) return;
    if (planned[i].is_stop() && !has_cost) return;
    const few_switches::SwitchLimits limits{
        .effort = effort, .stop = stop, .finish = is_finished ? std::stop_token() : finish};
    if (plan::NeedsFrontier(planned[i].target.kind)) {
      auto kept = few_switches::KeepChangeLimit(planner, plan, planned[i].target,
                                                {.most_changes = kMost}, limits);
      if (kept) plan = plan::BestPlan(planned[i].target, plan, std::span(&kept->plan, 1));
      return;
    }
    const auto few = few_switches::PlanFewSwitches(planner, plan.deadline, std::span(&kMost, 1),
                                                   std::span(&plan, 1), limits);
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
                                             double most_changes_per_s,
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
  const PickedLimit picked = PickLimit(planner, tradeoff, most_changes_per_s);
  if (!picked.saves || picked.keeps_most() || tradeoff.was_interrupted) return tradeoff;
  const int allowed = MostFollowed(planner, tradeoff.unlimited, most_changes_per_s);
  if (allowed < kFurtherLimits[0]) return tradeoff;
  if (few_switches::MostSwitches(tradeoff.unlimited.evaluation) <= allowed) {
    PERSEUS_ASSIGN_OR_RETURN(const double most_kept,
                             MostKeptFurther(planner, tradeoff.unlimited, limits));
    if (most_kept < KeptShare(planner)) {
      tradeoff.most_kept_further = most_kept;
      return tradeoff;
    }
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
