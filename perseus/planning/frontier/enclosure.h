// Two close bounds of the frontier of a large job, computed from a few deadlines.
//
// PROBLEM
//   The walk (walk.h) visits every breakpoint. A job of 64 stages x 512 microbatches has 400,000
//   breakpoints, and the walk takes minutes. A chart, a budget or a power cap needs far less
//   precision.
//
// IDEA (the "sandwich algorithm": Rote 1992)
//   E is convex. A schedule is a point on or above E, and the chord between two such points is also
//   on or above E. A flow is a line below E everywhere (weak duality, check.h). The solution for
//   one deadline gives a schedule and a flow. If the chord and the lines of two neighbors are too
//   far apart, the method solves another deadline between them. The distance falls with the square
//   of the interval.
//
//     E   o                       o   the schedule of a deadline
//         |\\                     \   chords: not below E
//         | \ `o.                 .   lines of flows: not above E
//         |  .   `--.
//         |    ` .    `-- o
//
//   Before it solves a deadline, the method combines the solutions at its two neighbors: **between
//   Before it solves a deadline, the method combines the solutions at its two neighbors: **between
//   two schedules lies a schedule, and the mean of two flows is a flow**. Each energy is one pass
//   over the arcs. The curves are convex, so the new schedule is below the chord, and the new line
//   is above the other lines. This saves about a third of the deadlines. If the two bounds are
//   still too far apart, the new schedule and flow are the warm start of the solver
//   (ApproximateDeadline). It then needs a tenth of the time of a cold start. For the warm start,
//   the mean of the flows must be exactly balanced at each node, without an excess from rounding.
//   Then the gap shows with which epsilon the solver has to begin (cost_scaling.h). Otherwise, the
//   solver takes 25 % longer.
//
// TRIED WITHOUT GAIN
//   Several deadlines in one interval at once, as many as the distance of its bounds suggests: the
//   distance does not follow the square of the interval closely enough.
//
// PROOF
//   Each bound comes from a schedule or a flow by a check that shares no code with the solver
//   (CheckSchedule, CheckFlow). So a wrong solution can only fail the check or widen the bounds.
//   All comparisons that affect a bound use exact integers. Floating-point numbers only choose the
//   deadlines, and which bounds to keep.
//
// DETERMINISM
//   The result for an interval depends only on the solutions at its ends. So the total result is
//   the same for any number of threads, and in any order.
//
// COMPLEXITY
//   O(sqrt(1 / error)) deadlines. Measured: 40 to 60 for an error of 0.01 %, for jobs of any size.
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
//   - upper - lower is at most `most_error` (above 0) at every point, and so everywhere. Rounding
//     adds two small terms: the price of one nanosecond (rounding of times), and 1 uW * the
//     distance of the ends of a chord (rounding of its price).
//
// `solved` are optima for different deadlines, fastest first. The first optimum is at the least
// possible time, and the last optimum is the cheapest schedule. At each optimum, the result has a
// point with lower = upper, except for the rounding above. Uses all cores. Calls `progress` (which
// may be empty) with the completed fraction, from one thread at a time. Fails (kSystem) after a
// stop request, or if a bound fails its check.
Result<std::vector<EnclosedPoint>> EncloseFrontier(const Network& network,
                                                   std::span<const Solution> solved,
                                                   Femtojoules most_error,
                                                   const std::function<void(double)>& progress,
                                                   const std::stop_token& stop);

}  // namespace perseus::frontier
