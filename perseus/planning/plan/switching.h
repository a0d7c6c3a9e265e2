// Plans for GPUs that take milliseconds to change their clock.
//
// Under a switching latency what an instruction takes depends on the clock before it
// (evaluation.h), so a plan made without it is late, and a switch that saves little is not worth
// its delay. Three plans are improved, and the best that meets the deadline wins; at equal energy,
// the one of fewer switches:
//   - one made without latency for a deadline shortened by what it was late;
//   - one made without latency and sped up where the latency hurts: an instruction on the critical
//     path gets its clock one instruction earlier;
//   - everything at maximum frequency, which never switches.
// Improving means local search on the exact evaluation: an instruction, or two in a row, at the
// clock of a neighbour; an instruction, or a whole run of one clock, a step slower.
#pragma once

#include "perseus/base/result.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::plan {

// Requires planner.model().switch_latency > 0. The plan's bound is that without latency, which
// holds under any latency. Fails with kUnreachable if no plan is found that meets the deadline.
// kFirstLook: local search for a fortieth of the time, and no annealing.
Result<Plan> PlanUnderLatency(const Planner& planner, Nanoseconds deadline,
                              const SearchLimits& limits);

}  // namespace perseus::plan
