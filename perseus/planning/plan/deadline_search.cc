#include "perseus/planning/plan/deadline_search.h"

#include <utility>

namespace perseus::plan {

DeadlineSearch::DeadlineSearch(const Planner& planner, Nanoseconds deadline, Microwatts price_floor)
    : planner_(planner),
      deadline_(deadline),
      price_floor_(price_floor),
      graph_(planner.graph(), planner.model().blocking_power_w) {}

Result<Plan> DeadlineSearch::PlanWith(const SearchLimits& limits) {
  if (!solution_) {
    PERSEUS_ASSIGN_OR_RETURN(auto solution, planner_.Relax(deadline_, price_floor_, limits.stop));
    solution_ = std::move(solution);
    search_.emplace(graph_, planner_.network(), *solution_);
  }
  PERSEUS_ASSIGN_OR_RETURN(const Choices chosen, search_->Spend(limits));
  Plan plan;
  plan.deadline = deadline_;
  plan.options = graph_.Options(chosen);
  plan.lower_bound_j =
      planner_.BoundOf(solution_->time(planner_.network()), solution_->extra_energy);
  return plan;
}

}  // namespace perseus::plan
