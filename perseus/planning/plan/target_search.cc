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

}  // namespace perseus::plan
