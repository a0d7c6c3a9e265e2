#include "perseus/planning/api/plan_iteration.h"

#include <algorithm>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/units.h"
#include "perseus/planning/plan/make_plan_file.h"
#include "perseus/planning/plan/planner.h"

namespace perseus {
namespace {

Result<void> CheckTarget(const plan::Target& target) {
  const NumberRange range = plan::ValueRange(target.kind);
  using Kind = plan::Target::Kind;
  const bool has_value = target.kind != Kind::kMinEnergy && target.kind != Kind::kEdp;
  if (!has_value || range.Holds(target.value)) return {};
  return Fail("{}: {} is not from {} to {} ({})", plan::Describe(target), target.value, range.least,
              range.most, range.unit);
}

}  // namespace

plan::Target NoSlowdown() { return Slowdown(0); }
plan::Target Slowdown(double percent) {
  return {.kind = plan::Target::Kind::kSlowdown, .value = percent};
}
plan::Target Deadline(double seconds) {
  return {.kind = plan::Target::Kind::kDeadline, .value = seconds};
}

double IterationPlan::gap() const { return std::max(0.0, energy_j / lower_bound_j - 1); }

Result<void> IterationPlan::Save(const std::string& path) const {
  return WriteFileAtomically(path, plan_file::FormatPlan(instructions));
}

Result<IterationPlan> PlanIteration(const job::JobSettings& settings,
                                    const std::optional<plan::Target>& asked,
                                    const PlanningOptions& options) {
  if (asked) PERSEUS_RETURN_IF_ERROR(CheckTarget(*asked));
  PERSEUS_ASSIGN_OR_RETURN(const auto job, job::LoadJob(settings));
  PERSEUS_ASSIGN_OR_RETURN(const auto planner, plan::Planner::Create(job.graph, job.model));
  recipe::Wishes wishes = job.wishes(asked);
  wishes.effort = options.effort;
  if (options.noise) wishes.noise = options.noise;
  recipe::Progress silent;
  PERSEUS_ASSIGN_OR_RETURN(auto plans,
                           recipe::PlanJob(planner, wishes, silent, options.finish, options.stop));
  const plan::Target& target = wishes.targets.front();
  const plan::Plan& plan = plans.Find(target)->plan;
  PERSEUS_ASSIGN_OR_RETURN(auto file, plan::MakePlanFile(planner, plan, target, job.planned));
  return IterationPlan{.time_s = ToSeconds(plan.evaluation.time),
                       .energy_j = plan.evaluation.energy_j,
                       .deadline_s = ToSeconds(plan.deadline),
                       .baseline_time_s = ToSeconds(planner.baseline().time),
                       .baseline_energy_j = planner.baseline().energy_j,
                       .lower_bound_j = plan.lower_bound_j,
                       .switch_tradeoff = std::move(plans.switch_tradeoff),
                       .instructions = std::move(file)};
}

}  // namespace perseus
