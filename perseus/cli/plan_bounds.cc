#include "perseus/cli/plan_bounds.h"

#include "perseus/base/parallel.h"
#include "perseus/planning/discrete_bound/discrete_bound.h"

namespace perseus::cli {

void RaiseRowBounds(const plan::Planner& planner, std::vector<PlannedTarget>& planned) {
  ForEachOnAllCores(planned.size(), [&](std::size_t i) {
    if (!planned[i].is_stop) discrete_bound::RaiseBound(planner, planned[i].plan);
  });
}

}  // namespace perseus::cli
