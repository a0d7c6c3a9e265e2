// Plans with few clock changes: `perseus plan --max-switches` and `--switch-tradeoff`.
#pragma once

#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cli/plan_targets.h"
#include "perseus/planning/few_switches/few_switches.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::cli {

// Fails if the target does not determine the time before the clocks are limited: an energy budget,
// a power cap, the energy-delay product or a price.
Result<void> CheckSwitchTarget(const plan::Target& target);

// Replaces the plans by plans with at most `most_switches` clock changes per pp_rank and iteration,
// for the same deadlines. Each then has the bound of that limit. Drops a stop without such a plan.
// Fails with kUnreachable if another target has none.
Result<std::vector<PlannedTarget>> LimitSwitches(const plan::Planner& planner,
                                                 std::vector<PlannedTarget> planned,
                                                 int most_switches);

// What each limit of clock changes costs, for one target.
struct SwitchTradeoff {
  plan::Plan unlimited;
  std::vector<few_switches::BudgetPlan> limited;
};
// The limits 0, 2, 3, 4, 6, 8, 12 and 16. `unlimited` is the plan without a limit.
Result<SwitchTradeoff> ComputeSwitchTradeoff(const plan::Planner& planner,
                                             const plan::Plan& unlimited);

// A table with a row for each limit.
std::string FormatSwitchTradeoff(const plan::Planner& planner, const SwitchTradeoff& tradeoff);

}  // namespace perseus::cli
