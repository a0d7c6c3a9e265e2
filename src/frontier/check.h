// The proof that goes with an optimum, and its checker.
//
// A Solution carries event times (a schedule) and a flow (prices). Event times alone prove that a
// plan exists; a flow alone proves a lower bound on every plan (weak duality); that the two meet,
// arc by arc, proves both optimal. Checking costs one pass over the arcs, so it runs after every
// solve, in release builds too.
#pragma once

#include <vector>

#include "perseus/base/result.h"
#include "perseus/frontier/network.h"

namespace perseus {

struct Solution {
  std::vector<Nanoseconds> event_times;  // [node]; 0 at the source.
  std::vector<Microwatts> flow;          // [arc], >= 0.
  // Flow from source to sink: the marginal price of time, -dE/dT at this deadline.
  Microwatts price = 0;
  // Sum over operations of Curve::ExtraEnergyAt(their duration).
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

}  // namespace perseus
