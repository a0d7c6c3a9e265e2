#include "perseus/planning/api/plan_iteration.h"

#include <algorithm>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/units.h"
#include "perseus/planning/discrete_bound/discrete_bound.h"
#include "perseus/planning/job/job_setup.h"
#include "perseus/planning/plan/make_plan_file.h"
#include "perseus/planning/plan/planner.h"

namespace perseus {
namespace {

// Without this check, a negative blocking power would give wrong energies without an error.
Result<void> CheckSpec(const IterationSpec& spec) {
  const NumberRange& power = job::kBlockingPowerRange;
  if (!power.Holds(spec.blocking_power_w)) {
    return Fail(
        "blocking_power_w is {} (set it to what one GPU draws while it waits, {} to {} {}; with 0, "
        "waiting uses no energy)",
        spec.blocking_power_w, power.least, power.most, power.unit);
  }
  if (spec.pp_ranks < 0) return Fail("pp_ranks is {} (expected 0 or more)", spec.pp_ranks);
  if (spec.microbatches < 1) {
    return Fail("microbatches is {} (set it to 1 or more)", spec.microbatches);
  }
  return {};
}

Result<void> CheckTarget(const plan::Target& target) {
  if (plan::NeedsFrontier(target.kind)) {
    return Fail("{} needs the frontier (use plan::PlanForTarget of planning/plan/target.h)",
                plan::Describe(target));
  }
  const NumberRange range = plan::ValueRange(target.kind);
  if (range.Holds(target.value) || target.kind == plan::Target::Kind::kMinEnergy) return {};
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

Result<IterationPlan> PlanIteration(const IterationSpec& spec, const plan::Target& target) {
  PERSEUS_RETURN_IF_ERROR(CheckSpec(spec));
  PERSEUS_RETURN_IF_ERROR(CheckTarget(target));
  job::JobSettings settings;
  settings.profile = spec.profile;
  settings.schedule = spec.schedule;
  if (spec.pp_ranks > 0) settings.pp_ranks = spec.pp_ranks;
  settings.microbatches = spec.microbatches;
  // The profile of a searched schedule says how many chunks it has.
  if (spec.schedule != job::kAutoSchedule || spec.chunks != 1) settings.chunks = spec.chunks;
  settings.max_in_flight = spec.max_in_flight;
  settings.gpus_per_stage = spec.gpus_per_stage;
  settings.blocking_power_w = spec.blocking_power_w;
  PERSEUS_ASSIGN_OR_RETURN(const auto job, job::LoadJob(settings));
  PERSEUS_ASSIGN_OR_RETURN(const auto planner, plan::Planner::Create(job.graph, job.model));
  PERSEUS_ASSIGN_OR_RETURN(auto plan, plan::PlanForTarget(planner, nullptr, target));
  discrete_bound::RaiseBound(planner, plan);
  PERSEUS_ASSIGN_OR_RETURN(auto file, plan::MakePlanFile(planner, plan, target, job.planned));
  return IterationPlan{.time_s = ToSeconds(plan.evaluation.time),
                       .energy_j = plan.evaluation.energy_j,
                       .deadline_s = ToSeconds(plan.deadline),
                       .baseline_time_s = ToSeconds(planner.baseline().time),
                       .baseline_energy_j = planner.baseline().energy_j,
                       .lower_bound_j = plan.lower_bound_j,
                       .instructions = std::move(file)};
}

}  // namespace perseus
