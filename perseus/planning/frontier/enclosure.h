// The frontier of a large job between two bounds, from a few deadlines.
//
// PROBLEM
//   The walk (walk.h) visits every breakpoint. A job of 64 stages x 512 microbatches has 400,000 of
//   them, and the walk takes minutes. A chart, a budget or a power cap needs far fewer digits.
//
// IDEA (the "sandwich algorithm": Rote 1992)
//   E is convex. A schedule is a point on or above E, and so is the chord between two such points.
//   A flow is a line below E everywhere (weak duality, check.h). One deadline gives both. Where the
//   chord and the lines of two neighbors are too far apart, another deadline between them brings
//   them closer: the distance falls with the square of the interval.
//
//     E   o                       o   the schedule of a deadline
//         |\\                     \   chords: not below E
//         | \ `o.                 .   lines of flows: not above E
//         |  .   `--.
//         |    ` .    `-- o
//
//   Before it solves a deadline, the method tries what it has: **between two schedules lies a
//   schedule, and the mean of two flows is a flow**. Their energies are one pass over the arcs
//   each. The schedule is below the chord, and the line above the others, because the curves bend.
//   About a third fewer deadlines are then necessary. Where the two are still too far apart, they
//   are the warm start of the solver (ApproximateDeadline), which needs a tenth of the time of a
//   cold start. For this, the mean of the flows must have no excess at any node, not even that of
//   rounding: then their gap shows with which epsilon to begin. Otherwise, it takes 25 % longer.
//
// TRIED WITHOUT GAIN
//   More than one deadline in a gap at once, as many as the distance of its bounds suggests: the
//   distance does not fall with the square of the interval closely enough.
//
// PROOF
//   Each bound comes from a schedule or a flow by a check that shares no code with the solver
//   (CheckSchedule, CheckFlow). A wrong solution could only fail the check or widen the bounds. All
//   comparisons that a bound depends on are exact integers. Floating-point numbers only choose the
//   deadlines and which bounds to keep.
//
// DETERMINISM
//   What an interval gives depends only on the solutions at its ends. So the result is the same for
//   any number of threads, and in any order.
//
// COMPLEXITY
//   O(sqrt(1 / error)) deadlines. Measured: 40 to 60 for an error of 0.01 %, of any job size.
//
// REFERENCE
//   G. Rote, The Convergence Rate of the Sandwich Algorithm for Approximating Convex Functions,
//     Computing 48 (1992).
#pragma once

#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/frontier/check.h"
#include "perseus/planning/frontier/network.h"

namespace perseus::frontier {

// lower <= E(time) <= upper.
struct EnclosedPoint {
  Nanoseconds time = 0;
  Femtojoules lower = 0;
  Femtojoules upper = 0;
  Microwatts price = 0;  // The slope of the lower bound just above `time`.
};

// Returns points, fastest first, such that
//   - between two points, E is between the straight lines through their lower and upper ends;
//   - upper - lower is at most `most_error` (above 0), at every point and so everywhere. To this,
//     the rounding of times adds at most the price of one nanosecond, and the rounding of a chord's
//     price 1 uW * the distance of its ends.
//
// `solved` are optima for different deadlines, fastest first. The first is at the least possible
// time, and the last is the cheapest schedule. Each has a point with lower = upper, except for this
// rounding. Uses all cores. Calls `progress` (which may be empty)
// with the completed fraction, from one thread at a time. Fails (kSystem) once `stop` is requested,
// or if a bound fails its check.
Result<std::vector<EnclosedPoint>> EncloseFrontier(const Network& network,
                                                   std::span<const Solution> solved,
                                                   Femtojoules most_error,
                                                   const std::function<void(double)>& progress,
                                                   const std::stop_token& stop);

}  // namespace perseus::frontier
