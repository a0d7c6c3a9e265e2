#include "perseus/cli/verbs/plan_bounds.h"

#include <algorithm>

#include "perseus/base/parallel.h"
#include "perseus/planning/discrete_bound/discrete_bound.h"

namespace perseus::cli {

void RaiseRowBounds(const plan::Planner& planner, std::vector<PlannedTarget>& planned,
                    const plan::Plan* raised) {
  ForEachOnAllCores(planned.size(), [&](std::size_t i) {
    plan::Plan& plan = planned[i].plan;
    if (planned[i].is_stop) return;
    if (raised != nullptr && raised->deadline == plan.deadline) {
      plan.lower_bound_j = std::max(plan.lower_bound_j, raised->lower_bound_j);
    } else {
      discrete_bound::RaiseBound(planner, plan);
    }
  });
}

}  // namespace perseus::cli
