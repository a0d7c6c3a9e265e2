#include "perseus/planning/plan/best_plan.h"

#include <algorithm>
#include <utility>

namespace perseus::plan {
namespace {

using Kind = Target::Kind;

// Whether `other` meets a target that `own` was made for.
bool Meets(const Target& target, const Plan& own, const Evaluation& other) {
  return (!LimitsTime(target.kind) || other.time <= own.deadline) && IsWithin(target, other);
}

}  // namespace

Plan BestPlan(const Target& target, const Plan& own, std::span<const Plan> others) {
  const auto rank = [&](const Plan& plan) {
    return std::pair(CostOf(target, plan.evaluation), plan.evaluation.energy_j);
  };
  const Plan* best = &own;
  for (const Plan& other : others) {
    if (Meets(target, own, other.evaluation) && rank(other) < rank(*best)) best = &other;
  }
  Plan plan = *best;
  plan.target = own.target;
  if (LimitsTime(target.kind)) plan.deadline = own.deadline;
  if (target.kind == Kind::kMinEnergy) plan.deadline = std::max(own.deadline, best->deadline);
  if (LimitsTime(target.kind) || target.kind == Kind::kMinEnergy) {
    plan.lower_bound_j = own.lower_bound_j;
  }
  return plan;
}

}  // namespace perseus::plan
