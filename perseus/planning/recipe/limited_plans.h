// Plans within a limit on clock changes: a number in an iteration, or the highest rate in hardware
// facts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/few_switches/few_switches.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/recipe/switch_tradeoff.h"
#include "perseus/planning/recipe/targets.h"

namespace perseus::recipe {

// What to do with a target for which no plan within the limit exists.
enum class WithoutPlan { kFail, kKeepUnlimited };

// Replaces the plans by plans with at most `most_switches` clock changes per pp_rank and iteration.
// Each new plan has the bound for that limit. If `tradeoff` has a plan for the same deadline and
// limit, reuses it. few_switches/change_rate.h describes the plan of a target that needs the
// frontier. Targets share their plans (ShareBetterPlans). `below` has plans within a smaller limit,
// or is empty: no target gets a worse plan than its plan in `below`.
//
// A target may have no plan within the limit. With kKeepUnlimited, it then keeps its plan without
// the limit (but a stop, Group::kStop, is dropped). With kFail, the target is dropped, or the
// function fails with kUnreachable if the user asked for the target.
Result<std::vector<PlannedTarget>> LimitSwitches(
    const plan::Planner& planner, std::vector<PlannedTarget> planned, int most_switches,
    const few_switches::SwitchLimits& limits, const std::optional<SwitchTradeoff>& tradeoff,
    WithoutPlan without_plan, const std::vector<PlannedTarget>& below = {});

// [effort] The plans for all targets, one list for each effort. At least one.
using PlansOfEfforts = std::vector<std::vector<PlannedTarget>>;

// Raises the limits of targets that lose much by the limit of `planned`. `unlimited` has their
// plans without a limit. A target that keeps less than KeptShare of that saving gets plans with
// more changes, as far as a GPU follows them (`most_changes_per_s`). Of these, it takes the one
// with the fewest changes that keeps KeptShare of the best. Then a plan never needs more energy
// than the plan of a tighter target. Leaves out targets that need the frontier, and stops.
Result<void> RaiseLimits(const plan::Planner& planner, const std::vector<PlannedTarget>& unlimited,
                         double most_changes_per_s, const few_switches::SwitchLimits& limits,
                         std::vector<PlannedTarget>& planned);

// Calls LimitSwitches with kFail for the limits 0, 2, 3 and so on up to `most_switches`. Each call
// gets the plans of the previous call as `below`. So if two runs differ only in their limits, the
// run with more changes never needs more energy. (A search for only one limit depends on chance: of
// 132 plans with limits of 0 to 10, 5 needed up to 0.2 % more energy than with one change less.)
// Above 16, only some limits are searched. The others use the plans of the next smaller limit.
//
// `of_efforts` has plans of rising effort. Climbs once from each of them, with one search
// (`limits.searches` is ignored), and takes the best plan for each target. A run with more effort
// also makes the climbs of less effort, so it is never worse.
Result<std::vector<PlannedTarget>> ClimbToLimit(const plan::Planner& planner,
                                                const PlansOfEfforts& of_efforts, int most_switches,
                                                const few_switches::SwitchLimits& limits,
                                                const std::optional<SwitchTradeoff>& tradeoff);

// If a GPU of a plan has more than `changes_per_s` clock changes per second, replaces the plan
// (few_switches/change_rate.h). Uses all cores. If a target has no such plan, it keeps its plan
// (kKeepUnlimited), or else is dropped, or the function fails if the user asked for the target.
Result<std::vector<PlannedTarget>> KeepChangeRate(const plan::Planner& planner,
                                                  std::vector<PlannedTarget> planned,
                                                  double changes_per_s,
                                                  const few_switches::SwitchLimits& limits,
                                                  WithoutPlan without_plan);

}  // namespace perseus::recipe
