// The least-energy durations for one deadline, without a walk along the frontier.
//
// The problem, for a network of arcs with convex curves f and a deadline T:
//
//     minimize  sum over arcs f(pi[head] - pi[tail])   subject to  pi[sink] - pi[source] <= T.
//
// The dual problem is a convex-cost circulation. A unit of flow (a microwatt) on an arc is worth
// the duration at which the slope of the arc is the flow. It has to return from the sink to the
// source at the price of T. A price floor on time is an amount of flow from source to sink that
// need not return. cost_scaling.h solves the circulation.
//
// At the least possible time, the critical path leaves no choice. All its events are then one
// "ground" node at time 0, which absorbs flow that would otherwise travel along the whole
// iteration. This makes that case about two times faster (docs/benchmarks.md). Afterwards, the flow
// that entered the ground at one event and left it at another is sent along the critical path,
// where everything runs at its fastest and takes any amount.
//
// Compared with the walk (walk.h): both are exact. The walk solves all deadlines at once, this
// solver solves one. At 65,536 instructions it is about 100 times faster (docs/benchmarks.md).
#pragma once

#include <optional>
#include <span>
#include <stop_token>

#include "perseus/base/result.h"
#include "perseus/planning/frontier/check.h"
#include "perseus/planning/frontier/network.h"

namespace perseus::frontier {

// The schedule no longer than `deadline` that minimizes extra energy + `price_floor` * its length.
// With price_floor = 0, its extra energy is E(deadline). If price_floor is the power that all
// pp_ranks draw while they wait, the schedule has the least total energy: it is shorter than the
// deadline if more time saves less than the waiting costs. The price of the solution is at least
// price_floor. It is above price_floor only if the schedule is as long as the deadline, or as long
// as the cheapest schedule of all.
//
// Requires deadline >= 0 and price_floor >= 0. Fails with
//   kUnreachable  below the least possible time, which the message contains
//   kInput        if the length of the cheapest schedule * nodes does not fit 64 bits (the walk has
//                 no such limit)
//   kSystem       once `stop` is requested
//
// `near` may be the event times of an optimum of a similar problem: other slopes, or another
// deadline. The solver then starts from these times, and needs a quarter of the time. The result is
// an optimum in any case. Empty: the solver starts without a guess.
Result<Solution> SolveDeadline(const Network& network, Nanoseconds deadline,
                               Microwatts price_floor = 0, const std::stop_token& stop = {},
                               std::span<const Nanoseconds> near = {});

// How ApproximateSchedule approximates.
struct Approximation {
  Femtojoules most_gap = 1;  // Above 0.
  // An optimum of a similar problem, if it is known: its event times and its flow. It need not be
  // feasible or balanced.
  const Solution* near = nullptr;
  // The solver may stop if every schedule costs more than this.
  std::optional<Femtojoules> most_cost = {};
};

// A schedule close to that of SolveDeadline, in a fraction of the time. Its cost is its extra
// energy + `price_floor` * its length. It exceeds the least cost by at most most_gap; or the least
// cost exceeds most_cost. The flow of the result proves nothing. Fails as SolveDeadline does.
Result<Solution> ApproximateSchedule(const Network& network, Nanoseconds deadline,
                                     Microwatts price_floor, const Approximation& approximation,
                                     const std::stop_token& stop = {});

// Close to the optimum for `deadline`, from a schedule and a flow that are close already (`near`),
// in a fraction of the time: a feasible schedule no longer than the deadline, and a flow with
// `price`. The energy of the schedule exceeds the bound of the flow (CheckFlow) at the deadline by
// at most `most_gap`, which is above 0. The flow of `near` need not be balanced, and its schedule
// may have any length.
//
// Requires a deadline above the least possible time and below that of the cheapest schedule. Fails
// as SolveDeadline does.
Result<Solution> ApproximateDeadline(const Network& network, Nanoseconds deadline,
                                     const Solution& near, Femtojoules most_gap,
                                     const std::stop_token& stop = {});

}  // namespace perseus::frontier
