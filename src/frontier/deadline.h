// The least-energy durations for one deadline, without walking the frontier to it.
//
// The problem, for a network of arcs with convex curves f and a deadline T:
//
//     minimise  sum over arcs f(pi[head] - pi[tail])   subject to  pi[sink] - pi[source] <= T.
//
// Its dual is a convex-cost circulation: a unit of flow (a microwatt) on an arc is worth the
// duration at which the arc's slope is the flow, and must come back from the sink to the source at
// the price of T. A price floor on time is that much flow from source to sink that need not. Both
// sides are optimal together when, on every arc,
//
//     flow could rise  =>  pi[head] - pi[tail] >= duration at the flow just above x    (1)
//     flow could fall  =>  pi[head] - pi[tail] <= duration at the flow just below x    (2)
//
// Method: cost scaling (Goldberg & Tarjan 1990; "partial augment-relabel", Goldberg 2008, and the
// "global update" heuristic of Goldberg 1997). Conditions (1) and (2) may be violated by epsilon;
// each phase divides epsilon by 8, repairs the flow to satisfy the conditions exactly, which leaves
// some nodes with too much flow, and pushes the excess to where flow is missing along arcs that
// violate (1) or (2) slightly, raising potentials where no such arc is left. Curves are never
// expanded into parallel arcs: an arc knows the vertex that its flow is at and looks one ahead.
//
// Times are multiplied by nodes + 1, so that a flow with epsilon = 1 is exactly optimal. Usually
// the flow is optimal several phases earlier; from a few nanoseconds on each phase ends with an
// attempt to find integer event times for which (1) and (2) hold exactly. That attempt is the
// proof, too.
//
// Against the walk (walk.h), both exact: the walk yields every deadline at once, this only one, but
// at 65,536 instructions it is about 30 times faster (docs/benchmarks.md). Rivals tried: LEMON's
// network simplex (twice slower than cost scaling at 1,536 instructions) and expanding the curves
// into ten times as many arcs (no faster, ten times the memory).
#pragma once

#include "perseus/base/result.h"
#include "perseus/frontier/check.h"
#include "perseus/frontier/network.h"

namespace perseus {

// The schedule of at most `deadline` that minimises extra energy + `price_floor` * its length. With
// price_floor = 0 that is E(deadline). With the power that ranks draw while they wait it is the
// least total energy: a schedule stops short of the deadline where more time saves less than it
// costs. The solution's price is at least price_floor, and above it only if the schedule is as long
// as the deadline or as the cheapest schedule of all.
//
// Requires deadline >= 0, price_floor >= 0. Fails with kUnreachable below the least possible time,
// naming it; with kInput where the length of the cheapest schedule * nodes does not fit 64 bits
// (the walk has no such limit).
Result<Solution> SolveDeadline(const Network& network, Nanoseconds deadline,
                               Microwatts price_floor = 0);

}  // namespace perseus
