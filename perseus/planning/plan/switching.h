// Plans for GPUs that take milliseconds to change their clock, or that pay for a change.
//
// With a switch latency, the time of an instruction depends on the clock before it (evaluation.h).
// So a plan that ignores the latency is late, and a switch that saves little energy is not worth
// its delay. The search starts from three plans and improves each of them:
//   - a plan made without latency, for a shorter deadline. The deadline is shorter by the time that
//     a plan for the real deadline would be late;
//   - a plan made without latency that is faster where the latency costs time: an instruction on
//     the critical path gets its clock one instruction earlier;
//   - all instructions at maximum frequency, so there is no switch.
// Each gets a short search. Only the best of them is then searched for long.
// The result is the plan with the least energy that meets the deadline. At equal energy, the plan
// with fewer switches is the result.
//
// The improvement is a local search on the exact evaluation. Either an instruction, or two in a
// row, gets the clock of a neighbor. Or an instruction, or a whole run of one clock, becomes one
// step slower. A stall at each switch has the same effects as a latency, so the same search plans
// with a switch cost.
#pragma once

#include "perseus/base/result.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::plan {

// Requires !planner.model().SwitchesAreFree(). The bound of the plan is the bound for free
// switches, which is valid with any latency and cost. Fails with kUnreachable if the search finds
// no plan that meets the deadline. With kFirstLook, there are only the short searches.
Result<Plan> PlanUnderLatency(const Planner& planner, Nanoseconds deadline,
                              const SearchLimits& limits);

}  // namespace perseus::plan
