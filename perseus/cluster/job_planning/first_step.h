// Computes the step from which the ranks of a job can follow a new assignment.
#pragma once

#include <cstdint>
#include <optional>

#include "perseus/cluster/store/store.h"

namespace perseus::job_planning {

// Returns the first step at which all ranks can follow an assignment that is made at `now`. The
// assignment takes `lead_s` to arrive, and steps run in the meantime. Returns 0 if no step was ever
// reported.
std::int64_t FirstStep(const store::JobRecord& job, double iteration_s, Milliseconds now,
                       double lead_s);

// The same for `assignment`, which replaces the active assignment `in_force`. Uses the shortest of
// three step times: the measured time, the time of the new assignment, and the time of the active
// assignment.
std::int64_t FirstStep(const store::JobRecord& job, const store::PlannedAssignment& assignment,
                       const std::optional<store::AssignmentRecord>& in_force, Milliseconds now,
                       double lead_s);

}  // namespace perseus::job_planning
