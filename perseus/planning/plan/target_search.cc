#include "perseus/planning/plan/target_search.h"

#include <algorithm>
#include <utility>

namespace perseus::plan {

TargetSearch::TargetSearch(const Planner& planner, const Frontier* frontier, const Target& target)
    : planner_(planner), frontier_(frontier), target_(target) {}

Result<Plan> TargetSearch::PlanWith(const SearchLimits& limits) {
  PERSEUS_ASSIGN_OR_RETURN(Plan plan, Make(limits));
  plan.target = Describe(target_);
  if (!best_ || CostOf(target_, plan.evaluation) < CostOf(target_, best_->evaluation)) {
    best_ = std::move(plan);
  }
  return *best_;
}

Result<Plan> TargetSearch::Make(const SearchLimits& limits) {
  if (!planner_.model().SwitchesAreFree() || !IsOneDeadline(target_.kind)) {
    return PlanForTarget(planner_, frontier_, target_, limits);
  }
  if (!search_) {
    PERSEUS_ASSIGN_OR_RETURN(const Nanoseconds deadline, DeadlineOf(planner_, frontier_, target_));
    search_ = std::make_unique<DeadlineSearch>(planner_, deadline, planner_.blocking_price());
  }
  PERSEUS_ASSIGN_OR_RETURN(Plan plan, search_->PlanWith(limits));
  return planner_.Evaluated(std::move(plan));
}

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
