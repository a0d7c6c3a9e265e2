// Plans for GPUs that take milliseconds to change their clock, or that pay for a change.
//
// With a switch latency, the time of an instruction depends on the clock before it (evaluation.h).
// So a plan made without the latency is late, and a switch that saves little is not worth its
// delay. Three plans are improved. The one with the least energy that meets the deadline is the
// result. At equal energy, it is the one with fewer switches:
//   - a plan made without latency, for a deadline that is shorter by the time that it was late;
//   - a plan made without latency that is faster where the latency hurts: an instruction on the
//     critical path gets its clock one instruction earlier;
//   - everything at maximum frequency, which never switches.
// A stall at each switch has the same effects, so the same search plans with a switch cost.
// A plan is improved by local search on the exact evaluation: an instruction, or two in a row, gets
// the clock of a neighbor; an instruction, or a whole run of one clock, becomes one step slower.
#pragma once

#include "perseus/base/result.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::plan {

// Requires !planner.model().SwitchesAreFree(). The bound of the plan is that of free switches,
// which holds under any latency and cost. Fails with kUnreachable if no plan is found that meets
// the deadline. With kFirstLook, the local search gets a fortieth of the work, and there is no
// annealing.
Result<Plan> PlanUnderLatency(const Planner& planner, Nanoseconds deadline,
                              const SearchLimits& limits);

}  // namespace perseus::plan
