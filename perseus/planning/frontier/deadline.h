// The least-energy durations for one deadline, without a walk along the frontier.
//
// The problem, for a network of arcs with convex curves f and a deadline T:
//
//     minimize  sum over arcs f(pi[head] - pi[tail])   subject to  pi[sink] - pi[source] <= T.
//
// The dual problem is a convex-cost circulation. A unit of flow (a microwatt) on an arc has a
// value: the duration at which the slope of the arc equals the flow. Each unit has to return from
// the sink to the source, at the price T. If time has a price floor, as many units of flow as the
// floor need not return. cost_scaling.h solves the circulation.
//
// At the least possible time, the events of the critical path cannot move. The solver then merges
// all of them into one "ground" node at time 0. The ground absorbs flow that would otherwise travel
// along the whole iteration. For this deadline, the solver is about two times faster with the
// ground than without it (docs/benchmarks.md). Afterwards, some flow has entered the ground at one
// event and left it at another. This flow is sent along the critical path. All arcs of this path
// have their fastest times, so they can carry any amount.
//
// Compared with the walk (walk.h): both are exact. The walk solves all deadlines at once, and this
// solver solves one. With 65,536 instructions, one deadline is about 100 times faster than the walk
// (docs/benchmarks.md).
#pragma once

#include <optional>
#include <span>
#include <stop_token>

#include "perseus/base/result.h"
#include "perseus/planning/frontier/check.h"
#include "perseus/planning/frontier/network.h"

namespace perseus::frontier {

// Returns the schedule within `deadline` that minimizes extra energy + `price_floor` * its length.
// With price_floor = 0, its extra energy is E(deadline). If price_floor is the power that all
// pp_ranks draw while they wait, the schedule has the least total energy. It is then shorter than
// the deadline if more time saves less energy than the waiting costs. The price of the solution is
// at least price_floor. It is above price_floor only if the schedule is as long as the deadline, or
// as long as the cheapest schedule of all.
//
// Requires deadline >= 0 and price_floor >= 0. Fails with
//   kUnreachable  if `deadline` is below the least possible time, which the message contains
//   kInput        if the length of the cheapest schedule * nodes does not fit 64 bits (the walk has
//                 no such limit)
//   kSystem       after a stop request
//
// `near` may be the event times of an optimum of a similar problem: other slopes, or another
// deadline. The solver then starts from these times, and needs a quarter of the time. The result is
// an optimum in any case. If `near` is empty, the solver starts without a guess.
Result<Solution> SolveDeadline(const Network& network, Nanoseconds deadline,
                               Microwatts price_floor = 0, const std::stop_token& stop = {},
                               std::span<const Nanoseconds> near = {});

// How ApproximateSchedule approximates.
struct Approximation {
  Femtojoules most_gap = 1;  // Above 0.
  // An optimum of a similar problem, if it is known: its event times and its flow. The times need
  // not be feasible, and the flow need not be balanced.
  const Solution* near = nullptr;
  // The solver may stop if every schedule costs more than this.
  std::optional<Femtojoules> most_cost = {};
};

// Returns a schedule close to that of SolveDeadline, in a fraction of the time. The cost of a
// schedule is its extra energy + `price_floor` * its length. The cost of the result is at most
// most_gap above the least cost, unless the least cost is above most_cost. The flow of the result
// proves nothing. Fails as SolveDeadline does.
Result<Solution> ApproximateSchedule(const Network& network, Nanoseconds deadline,
                                     Microwatts price_floor, const Approximation& approximation,
                                     const std::stop_token& stop = {});

// Returns a feasible schedule within the deadline, and a flow with `price`, both close to the
// optimum. Starts from a schedule and a flow that are already close (`near`), so it needs a
// fraction of the time. At the deadline, the energy of the schedule is at most `most_gap` (above 0)
// above the bound of the flow (CheckFlow). The flow of `near` need not be balanced, and its
// schedule may have any length.
//
// Requires a deadline above the least possible time and below the length of the cheapest schedule.
// Fails as SolveDeadline does.
Result<Solution> ApproximateDeadline(const Network& network, Nanoseconds deadline,
                                     const Solution& near, Femtojoules most_gap,
                                     const std::stop_token& stop = {});

}  // namespace perseus::frontier
