// Plans for GPUs that take milliseconds to change their clock.
//
// Under a switching latency what an operation takes depends on the clock before it (evaluation.h),
// so a plan made without it is late, and a switch that saves little is not worth its delay. Two
// kinds of plans are tried: one made without latency for a deadline shortened by what it was late,
// and one in which every rank keeps one clock and never switches. Each is improved by local search
// on the exact evaluation: let an operation, or two in a row, run at the clock of the one before or
// after. The best that meets the deadline wins; at equal energy, the one of fewer switches.
#pragma once

#include "perseus/base/result.h"
#include "perseus/plan/planner.h"

namespace perseus {

// Requires planner.model().switch_latency > 0. The plan's bound is that without latency, which
// holds under any latency. Fails with kUnreachable if no plan is found that meets the deadline.
Result<Plan> PlanUnderLatency(const Planner& planner, Nanoseconds deadline);

}  // namespace perseus
