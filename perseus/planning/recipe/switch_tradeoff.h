// What plans save with different limits on clock changes, and which limit is picked.
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

// The part of a saving that a picked limit keeps. If plans count what a change costs, more changes
// are worth it if they save more. If not, they have costs that no plan counts.
double KeptShare(const plan::Planner& planner);

// The effort of the last search after a finish request. This short search is necessary: without it,
// perhaps only plans without any change would keep a limit, and other plans would have too many.
inline constexpr double kEffortAfterFinish = 0.1;

// What each limit of clock changes costs, for one target.
struct SwitchTradeoff {
  plan::Plan unlimited;
  std::vector<few_switches::BudgetPlan> limited;
  // An upper bound on the part of the saving that limits above 16 keep. Set only if these limits
  // were left out.
  std::optional<double> most_kept_further = {};
  bool was_interrupted = false;  // Whether the search within the limits ended early.
};

// Computes plans for the limits 0, 2, 3, 4, 6, 8, 12 and 16. `unlimited` is the plan without a
// limit. If no limit keeps KeptShare of its saving, also computes plans for 24, 32 and 48. Leaves
// these out if the bound for 48 shows that they cannot keep it either, unless `unlimited` has more
// changes than `most_changes_per_s`. If a plan with a limit is better, it replaces `unlimited`.
// `bounds` are the result of BoundTradeoff, or empty.
Result<SwitchTradeoff> ComputeSwitchTradeoff(const plan::Planner& planner,
                                             const plan::Plan& unlimited,
                                             const few_switches::SwitchLimits& limits,
                                             double most_changes_per_s,
                                             std::vector<few_switches::BudgetBound> bounds = {});

// Computes the bounds for ComputeSwitchTradeoff. This needs no plan, so it may run while the search
// improves the plan.
Result<std::vector<few_switches::BudgetBound>> BoundTradeoff(
    const plan::Planner& planner, Nanoseconds deadline, const few_switches::SwitchLimits& limits);

// The saving of a plan, compared with all instructions at maximum frequency.
double SavingJ(const plan::Planner& planner, const plan::Plan& plan);

// Whether the plan needs less energy than the baseline, by more than rounding.
bool Saves(const plan::Planner& planner, const plan::Plan& plan);

// The picked limit, and why.
struct PickedLimit {
  std::optional<int> most_switches;  // nullopt: no limit.
  // The part of the saving of the best known plan that the limit keeps. That plan may have more
  // changes than GPUs can follow.
  double kept = 1;
  double asked_share = 1;  // KeptShare of the planner.
  bool saves = true;       // Whether a plan of the trade-off saves energy.

  bool keeps_most() const { return most_switches && kept >= asked_share; }
};

// Picks a limit that GPUs can follow: at most `most_changes_per_s`. Of the plans within this rate,
// one saves the most. Returns the smallest limit that keeps KeptShare of this saving. Returns
// nullopt if only the plan without a limit does.
PickedLimit PickLimit(const plan::Planner& planner, const SwitchTradeoff& tradeoff,
                      double most_changes_per_s);

// Returns the limits of a trade-off that are above `limit`, in rising order.
std::vector<int> LimitsAbove(int limit);

// Replaces each plan by the best plan that meets its target and its limit on clock changes.
// Considers only plans that the target may take (MayTake). The effort of each search is limited, so
// the plan of one target may be the better plan for another target.
void ShareBetterPlans(std::vector<PlannedTarget>& planned);

// For each plan, searches the best plan with at most 16 changes. Uses the new plan if it is better
// for the target. If changes have a latency or a cost, few changes are often better. `effort` is
// the work of each search, relative to the usual one. The bounds of plans with a time limit do not
// change. After a request to stop, the plans so far stay. If a finish was requested before, the
// searches are short.
void ImproveUnderSwitchCost(const plan::Planner& planner, double effort,
                            const std::stop_token& stop, const std::stop_token& finish,
                            std::vector<PlannedTarget>& planned);

// For each limit of the trade-off, takes the best plan with the same deadline that keeps the limit.
// So the trade-off and the plans agree. (The plan of a target may be better, because its search
// used plans with smaller limits.)
void TakeBetterPlans(const std::vector<PlannedTarget>& planned, SwitchTradeoff& tradeoff);

}  // namespace perseus::recipe
