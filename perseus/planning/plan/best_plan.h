// The best plan for a target among plans that were made for several targets.
//
// The search for a plan is not exact, above all under a switch latency. So a plan for another
// target may be better for this one: a plan for a tighter deadline is also a plan for a looser one,
// and the plan of least energy-delay product may be one that was made for a slowdown. A verb that
// makes several plans calls BestPlan for each of them. Its results then never contradict each
// other: more time never needs more energy.
#pragma once

#include <span>

#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/target.h"

namespace perseus::plan {

// Returns `own`, which was made for `target`, or the plan of `others` that meets the target with
// less of what it minimizes: the energy, the time (kEnergyBudget, kPowerCap), the energy-delay
// product or the cost. Of equal ones, that of less energy, and then `own`. The result has a
// certificate for the target:
//   - with a deadline, the deadline and the bound of `own`;
//   - for kMinEnergy, the bound of `own`, which holds at any time;
//   - otherwise, the deadline and the bound that the plan was made with.
Plan BestPlan(const Target& target, const Plan& own, std::span<const Plan> others);

}  // namespace perseus::plan
