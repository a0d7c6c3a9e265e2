// The proof that goes with an optimum, and its checker.
//
// A Solution carries event times (a schedule) and a flow (prices). Event times alone prove that a
// plan exists; a flow alone proves a lower bound on every plan (weak duality); that the two meet,
// arc by arc, proves both optimal. Checking costs one pass over the arcs, so the planner (plan/)
// does it in release builds too: CheckDeadline for every deadline that is solved; for a frontier
// CheckConvex over all its points, and CheckOptimality at the fastest. (The tests check optimality
// at every point.)
#pragma once

#include <span>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/frontier/network.h"

namespace perseus::frontier {

struct Solution {
  std::vector<Nanoseconds> event_times;  // [node]; 0 at the source.
  std::vector<Microwatts> flow;          // [arc], >= 0.
  // Flow from source to sink: the marginal price of time, -dE/dT at this deadline.
  Microwatts price = 0;
  // Sum over instructions of Curve::ExtraEnergyAt(their duration).
  Femtojoules extra_energy = 0;

  Nanoseconds time(const Network& network) const {
    return event_times[static_cast<std::size_t>(network.sink)];
  }
};

// Verifies, in exact integers, that
//   1. the source happens at 0, and every arc lasts at least its curve's fastest time (the schedule
//      is feasible);
//   2. what flows into a node flows out, `price` from source to sink (the prices are consistent);
//   3. every arc's flow lies between the slopes on either side of its length (complementary
//      slackness): no flow beyond the slowest time, exactly the slope strictly inside a segment,
//      between the two slopes at a vertex, at least the steepest slope at the fastest time;
//   4. `extra_energy` is the energy of those lengths.
// Then no schedule of the same length costs less. Fails with the first violation, naming the arc.
Result<void> CheckOptimality(const Network& network, const Solution& solution);

// The same for what SolveDeadline promises: besides being optimal for its own length,
//   5. the schedule is no longer than `deadline`;
//   6. `price` is at least `price_floor`;
//   7. it is above it only where more time cannot be had (the schedule is as long as the deadline)
//      or is of no use (`extra_energy` is 0).
// Then no schedule within the deadline has less extra energy + price_floor * length: by 1 to 4,
// another of length T has at least extra_energy + price * (time - T), so a shorter one saves no
// more than it costs by 6, and a longer one by 7.
Result<void> CheckDeadline(const Network& network, const Solution& solution, Nanoseconds deadline,
                           Microwatts price_floor);

// A point of the frontier: E at that time.
struct Breakpoint {
  Nanoseconds time = 0;
  Femtojoules extra_energy = 0;
};

// Verifies, in exact integers, that the points, slowest first, lie on a falling convex function
// from 0 up: each is faster than the one before, and the price of a nanosecond between them is
// whole, positive, and never below the one before.
Result<void> CheckConvex(std::span<const Breakpoint> points);

}  // namespace perseus::frontier
