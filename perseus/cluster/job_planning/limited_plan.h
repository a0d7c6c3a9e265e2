// Plans of a job that limits the clock changes of its GPUs (max_switches of its registration).
#pragma once

#include <stop_token>

#include "perseus/base/result.h"
#include "perseus/cluster/job_planning/job_spec.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::job_planning {

// Fails (kInput) if the registration limits clock changes and the target does not determine the
// time of an iteration: an energy budget, a power cap, the energy-delay product or a price.
Result<void> CheckLimitedTarget(const JobSpec& spec, const plan::Target& target);

// `plan` without a limit in the registration. Otherwise, a plan within the limit and the deadline
// of `plan`. It has the greater of two bounds: that of `plan`, which may count waiting for a
// straggler, and that of the limit. Fails with kUnreachable if no plan is found, and with kSystem
// once `stop` is requested.
Result<plan::Plan> WithinLimit(const JobSpec& spec, const plan::Planner& planner, plan::Plan plan,
                               const std::stop_token& stop);

}  // namespace perseus::job_planning
