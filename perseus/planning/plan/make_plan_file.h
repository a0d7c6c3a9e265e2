// From a plan of the solver to the plan file that others read (plan_file.h).
#pragma once

#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan_file/plan_file.h"

namespace perseus::plan {

// `plan` is one of `planner`'s plans, and `planner` was made for `job`.
plan_file::PlanFile MakePlanFile(const Planner& planner, const Plan& plan,
                                 plan_file::PlannedJob job);

}  // namespace perseus::plan
