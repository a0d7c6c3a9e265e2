#include "perseus/planning/few_switches/change_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace perseus::few_switches {
namespace {

constexpr double kUsedPartOfRate = 0.95;
// More changes than any iteration has, so that the product fits.
constexpr double kMostChanges = 1e9;
constexpr int kMostShorterDeadlines = 4;
// How much longer than the plan without a limit a plan may take to meet its budget or its cap.
constexpr std::array<double, 8> kLongerTimes = {1, 1.01, 1.02, 1.04, 1.08, 1.16, 1.32, 1.64};

int MostSwitches(const plan::Evaluation& evaluation) {
  const std::vector<int>& switches = evaluation.pp_rank_switches;
  return switches.empty() ? 0 : *std::max_element(switches.begin(), switches.end());
}

bool Meets(const plan::Target& target, const plan::Evaluation& evaluation) {
  using Kind = plan::Target::Kind;
  if (target.kind == Kind::kEnergyBudget) return evaluation.energy_j <= target.value;
  if (target.kind == Kind::kPowerCap) return evaluation.average_power_w() <= target.value;
  return true;
}

Result<std::optional<plan::Plan>> PlanWithoutSwitchLatency(const plan::Planner& planner,
                                                           Nanoseconds deadline, int most,
                                                           const plan::Plan& known,
                                                           const SwitchLimits& limits) {
  PERSEUS_ASSIGN_OR_RETURN(auto found, PlanFewSwitches(planner, deadline, std::span(&most, 1),
                                                       std::span(&known, 1), limits));
  return std::move(found.front().plan);
}

// The changes of the plans that are tried under a latency, in rising order.
std::vector<int> BudgetsUpTo(int most) {
  std::vector<int> budgets{0, most / 2, most};
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  return budgets;
}

// The plan of least energy that is in time under the latency, among the candidates of the header.
Result<std::optional<plan::Plan>> PlanUnderSwitchLatency(const plan::Planner& planner,
                                                         Nanoseconds deadline, int most,
                                                         const plan::Plan& known,
                                                         const SwitchLimits& limits) {
  PERSEUS_ASSIGN_OR_RETURN(const double bound_j, planner.BoundFor(deadline));
  PERSEUS_ASSIGN_OR_RETURN(
      const plan::Planner free,
      plan::Planner::Create(planner.graph(), {.blocking_power_w = planner.model().blocking_power_w},
                            plan::Planner::FewOptions::kAccept));
  const plan::Evaluator evaluator(planner.graph(), planner.model());
  std::optional<plan::Plan> best;
  // Returns by how much the candidate is late.
  const auto consider = [&](std::vector<int> options) {
    plan::Evaluation evaluation = evaluator.Evaluate(options);
    const Nanoseconds late = evaluation.time - deadline;
    if (late <= 0 && MostSwitches(evaluation) <= most &&
        (!best || evaluation.energy_j < best->evaluation.energy_j)) {
      best = plan::Plan{.target = {},
                        .deadline = deadline,
                        .options = std::move(options),
                        .evaluation = std::move(evaluation),
                        .lower_bound_j = bound_j};
    }
    return late;
  };
  consider(schedule::BaselineOptions(planner.graph()));
  const std::vector<int> budgets = BudgetsUpTo(most);
  Nanoseconds aim = deadline;
  for (int i = 0; i < kMostShorterDeadlines && aim >= free.least_time(); ++i) {
    PERSEUS_ASSIGN_OR_RETURN(auto found,
                             PlanFewSwitches(free, aim, budgets, std::span(&known, 1), limits));
    Nanoseconds late = 0;
    for (BudgetPlan& budget : found) {
      if (budget.plan) late = std::max(late, consider(std::move(budget.plan->options)));
    }
    if (late == 0) break;
    aim -= late;
  }
  return best;
}

}  // namespace

int MostChanges(double changes_per_s, Nanoseconds time) {
  return static_cast<int>(
      std::min(kMostChanges, kUsedPartOfRate * changes_per_s * ToSeconds(time)));
}

Result<KeptPlan> KeepChangeRate(const plan::Planner& planner, plan::Plan plan,
                                const plan::Target& target, double changes_per_s,
                                const SwitchLimits& limits) {
  if (MostSwitches(plan.evaluation) <= MostChanges(changes_per_s, plan.evaluation.time)) {
    return KeptPlan{std::move(plan), std::nullopt};
  }
  const auto search =
      planner.model().switch_latency > 0 ? PlanUnderSwitchLatency : PlanWithoutSwitchLatency;
  for (const double longer : kLongerTimes) {
    const auto deadline =
        longer == 1 ? plan.deadline
                    : static_cast<Nanoseconds>(longer * static_cast<double>(plan.deadline));
    const int most = MostChanges(changes_per_s, deadline);
    PERSEUS_ASSIGN_OR_RETURN(auto found, search(planner, deadline, most, plan, limits));
    if (found && Meets(target, found->evaluation)) {
      found->target = fmt::format("{}, at most {} switches per GPU", plan.target, most);
      return KeptPlan{*std::move(found), most};
    }
    const bool may_be_longer = target.kind == plan::Target::Kind::kEnergyBudget ||
                               target.kind == plan::Target::Kind::kPowerCap;
    if (!may_be_longer) break;
  }
  return FailAs(
      ErrorKind::kUnreachable,
      "{}: found no plan with at most {} switches per GPU, which {:.4g} clock changes per "
      "second and GPU allow (choose another target, or allow more changes)",
      plan.target, MostChanges(changes_per_s, plan.deadline), changes_per_s);
}

}  // namespace perseus::few_switches
