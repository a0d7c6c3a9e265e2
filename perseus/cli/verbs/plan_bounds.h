// The bounds of the rows of `perseus plan`.
#pragma once

#include <vector>

#include "perseus/cli/verbs/plan_targets.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::cli {

// Replaces the bound of each plan by the bound for measured options where it is greater
// (planning/discrete_bound). Leaves out stops, which have no row in the table. `raised` is a plan
// that has such a bound already: other plans of its deadline take it over.
void RaiseRowBounds(const plan::Planner& planner, std::vector<PlannedTarget>& planned,
                    const plan::Plan* raised = nullptr);

}  // namespace perseus::cli
