// Plans within a limit of clock changes: a number in an iteration, or the highest rate in hardware
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

// What to do with a target that has no plan within the limit.
enum class WithoutPlan { kFail, kKeepUnlimited };

// Replaces the plans by plans with at most `most_switches` clock changes per pp_rank and iteration.
// Each then has the bound of that limit. Reuses the plan of `tradeoff` for the same deadline and
// limit. few_switches/change_rate.h describes the plan of a target that needs the frontier. Targets
// share their plans (ShareBetterPlans). `below` are plans within a smaller limit, or none: no
// target gets a worse plan than its plan in `below`.
//
// A target may have no such plan. Then kKeepUnlimited keeps its plan without the limit (and drops a
// stop). kFail drops the target, or fails with kUnreachable if the target is asked for.
Result<std::vector<PlannedTarget>> LimitSwitches(
    const plan::Planner& planner, std::vector<PlannedTarget> planned, int most_switches,
    const few_switches::SwitchLimits& limits, const std::optional<SwitchTradeoff>& tradeoff,
    WithoutPlan without_plan, const std::vector<PlannedTarget>& below = {});

// [effort] the plans for all targets. At least one.
using PlansOfEfforts = std::vector<std::vector<PlannedTarget>>;

// Calls LimitSwitches with kFail for the limits 0, 2, 3 and so on up to `most_switches`. Each call
// gets the plans of the call before as `below`. So in two runs with different limits and all else
// equal, the run with more changes allowed never needs more energy. (A search for one limit alone
// depends on chance: of 132 plans with limits of 0 to 10, 5 needed up to 0.2 % more energy than
// with one change less.) Above 16, only some limits are searched; the others have the plans of the
// next smaller one.
//
// Climbs once from each of `of_efforts`, the plans of rising effort, with one search
// (`limits.searches` does not count), and takes the best plan for each target. A run with more
// effort makes the climbs of less effort too, so it is never worse.
Result<std::vector<PlannedTarget>> ClimbToLimit(const plan::Planner& planner,
                                                const PlansOfEfforts& of_efforts, int most_switches,
                                                const few_switches::SwitchLimits& limits,
                                                const std::optional<SwitchTradeoff>& tradeoff);

// Replaces each plan with a GPU above `changes_per_s` clock changes per second
// (few_switches/change_rate.h), on all cores. If a target has no such plan, drops it, or fails if
// it is asked for.
Result<std::vector<PlannedTarget>> KeepChangeRate(const plan::Planner& planner,
                                                  std::vector<PlannedTarget> planned,
                                                  double changes_per_s,
                                                  const few_switches::SwitchLimits& limits);

}  // namespace perseus::recipe
