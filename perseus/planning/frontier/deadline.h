// The least-energy durations for one deadline, without walking the frontier to it.
//
// The problem, for a network of arcs with convex curves f and a deadline T:
//
//     minimise  sum over arcs f(pi[head] - pi[tail])   subject to  pi[sink] - pi[source] <= T.
//
// Its dual is a convex-cost circulation: a unit of flow (a microwatt) on an arc is worth the
// duration at which the arc's slope is the flow, and must come back from the sink to the source at
// the price of T. A price floor on time is that much flow from source to sink that need not.
// cost_scaling.h solves it.
//
// At the least possible time itself the critical path leaves no choice, and all its events count as
// one "ground" node at time 0: flow that would have to travel along the whole iteration is
// absorbed next door. That makes the case about twice as fast (docs/benchmarks.md). Afterwards the
// flow that the ground took in at one event and gave out at another is sent along the critical
// path, where everything runs at its fastest and takes any amount.
//
// Against the walk (walk.h), both exact: the walk yields every deadline at once, this only one, but
// at 65,536 instructions it is about 100 times faster (docs/benchmarks.md).
#pragma once

#include <stop_token>

#include "perseus/base/result.h"
#include "perseus/planning/frontier/check.h"
#include "perseus/planning/frontier/network.h"

namespace perseus::frontier {

// The schedule of at most `deadline` that minimises extra energy + `price_floor` * its length. With
// price_floor = 0 that is E(deadline). With the power that ranks draw while they wait it is the
// least total energy: a schedule stops short of the deadline where more time saves less than it
// costs. The solution's price is at least price_floor, and above it only if the schedule is as long
// as the deadline or as the cheapest schedule of all.
//
// Requires deadline >= 0, price_floor >= 0. Fails with kUnreachable below the least possible time,
// naming it; with kInput where the length of the cheapest schedule * nodes does not fit 64 bits
// (the walk has no such limit); with kSystem once `stop` is requested.
Result<Solution> SolveDeadline(const Network& network, Nanoseconds deadline,
                               Microwatts price_floor = 0, const std::stop_token& stop = {});

}  // namespace perseus::frontier
