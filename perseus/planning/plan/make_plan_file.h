// Turns a plan of the planner into a plan file (plan_file.h).
#pragma once

#include "perseus/base/result.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/plan_file/plan_file.h"

namespace perseus::plan {

// Returns the execution model of a job. Its values are for a pp_rank: all GPUs of a stage together.
ExecutionModel ModelOf(const plan_file::PlannedJob& job);
// Returns the same from its parts. `cost` is the switch cost of one GPU.
ExecutionModel ModelOf(const schedule::PipelineModel& model, Nanoseconds switch_latency,
                       const schedule::SwitchCost& cost);

// Checks a finished plan for `target`, and returns its file. Fails as CheckKeeps does (target.h).
// Requires that `planner` made `plan`, and that `planner` was created for `job`.
Result<plan_file::PlanFile> MakePlanFile(const Planner& planner, const Plan& plan,
                                         const Target& target, plan_file::PlannedJob job);

// Returns the file of a plan without a check: the plan was checked before, or has no target. The
// instructions and the baseline come from `planner`.
plan_file::PlanFile DescribePlan(const Planner& planner, const Plan& plan,
                                 plan_file::PlannedJob job);

}  // namespace perseus::plan
