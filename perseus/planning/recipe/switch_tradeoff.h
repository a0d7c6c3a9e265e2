// What limits of clock changes save, and the limit that is picked.
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/few_switches/few_switches.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/recipe/targets.h"

namespace perseus::recipe {

// The greatest limit of a trade-off.
inline constexpr int kGreatestTradedLimit = 48;

// What each limit of clock changes costs, for one target.
struct SwitchTradeoff {
  plan::Plan unlimited;
  std::vector<few_switches::BudgetPlan> limited;
  // Where the limits above 16 were left out: no plan with them keeps more than this part of the
  // saving.
  std::optional<double> most_kept_further = {};
  bool was_interrupted = false;  // The search within the limits did not end.
};
// The limits 0, 2, 3, 4, 6, 8, 12 and 16. If none of them keeps 95 % of the saving of `unlimited`,
// then also 24, 32 and 48, unless the bound for 48 says that those cannot either. `unlimited` is
// the plan without a limit. If a plan with a limit is better, it takes its place, because with a
// switch latency or cost few changes are often better. `bounds` are those of BoundTradeoff, or
// none.
Result<SwitchTradeoff> ComputeSwitchTradeoff(const plan::Planner& planner,
                                             const plan::Plan& unlimited,
                                             const few_switches::SwitchLimits& limits,
                                             std::vector<few_switches::BudgetBound> bounds = {});
// What ComputeSwitchTradeoff computes before it needs a plan. It may run while the plan improves.
Result<std::vector<few_switches::BudgetBound>> BoundTradeoff(
    const plan::Planner& planner, Nanoseconds deadline, const few_switches::SwitchLimits& limits);

// Whether the plan needs less energy than the baseline, by more than rounding.
bool Saves(const plan::Planner& planner, const plan::Plan& plan);

// The limit that was picked.
struct PickedLimit {
  std::optional<int> most_switches;  // Empty: no limit.
  bool keeps_most = false;           // It keeps 95 % of the saving.
  bool saves = true;                 // Whether a plan of the trade-off saves energy.
  std::optional<int> allowed;        // The greatest limit that the hardware facts allow.
};

// The smallest limit that keeps 95 % of the largest saving of the trade-off, or else the greatest
// limit that is allowed.
PickedLimit PickLimit(const plan::Planner& planner, const SwitchTradeoff& tradeoff,
                      const std::optional<double>& most_changes_per_s);

// Each search is limited, so the plan of one target may be the better one for another. Each plan
// becomes the best of all plans that meet its target and its limit of clock changes
// (plan/best_plan.h).
void ShareBetterPlans(std::vector<PlannedTarget>& planned);

// With a switch latency or cost, few switches are often better than those that a plan for each
// instruction has. Replaces each plan with a time by the best one with at most 16, if that needs
// less energy. The bounds stay. Once a finish is requested, the plans so far stay.
void ImproveUnderSwitchCost(const plan::Planner& planner, const std::stop_token& finish,
                            std::vector<PlannedTarget>& planned);

// A plan within a limit may be better than that of the trade-off, because it used plans of smaller
// limits. Each limit gets the best plan for its deadline that keeps it, so that they agree.
void TakeBetterPlans(const std::vector<PlannedTarget>& planned, SwitchTradeoff& tradeoff);

}  // namespace perseus::recipe
