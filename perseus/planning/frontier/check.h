// The proof that a solution is optimal, and the checker of this proof.
//
// A Solution has event times (a schedule) and a flow (prices). The event times alone prove that a
// schedule exists. The flow alone proves a lower bound on the energy of every plan (weak duality).
// If the two agree arc by arc, both are optimal. A check is only one pass over the arcs, so the
// planner (plan/) checks its results in release builds, too. It calls CheckDeadline for every
// deadline that it solves. For a frontier, it calls CheckConvex over all points, and
// CheckOptimality at the fastest point. (The tests check optimality at every point.)
#pragma once

#include <span>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/frontier/network.h"

namespace perseus::frontier {

struct Solution {
  std::vector<Nanoseconds> event_times;  // [node]; 0 at the source.
  std::vector<Microwatts> flow;          // [arc], >= 0.
  // The value of the flow from source to sink: the marginal price of time, -dE/dT, at this
  // deadline.
  Microwatts price = 0;
  // Sum over instructions of Curve::ExtraEnergyAt(their duration).
  Femtojoules extra_energy = 0;

  Nanoseconds time(const Network& network) const {
    return event_times[static_cast<std::size_t>(network.sink)];
  }
};

// Verifies, in exact integers, that
//   1. the source happens at 0, and every arc lasts at least the fastest time of its curve (the
//      schedule is feasible);
//   2. the flow into each node equals the flow out of it, and `price` flows from source to sink
//      (the prices are consistent);
//   3. the flow of every arc is between the slopes of its curve before and after its length
//      (complementary slackness). So beyond the slowest time, the flow is 0. Strictly inside a
//      segment, it is exactly the slope. At a vertex, it is between the two slopes. At the fastest
//      time, it is at least the steepest slope;
//   4. `extra_energy` is the energy of these lengths.
// If all four hold, no schedule of the same length has less energy. Fails with the first violation
// and its arc.
Result<void> CheckOptimality(const Network& network, const Solution& solution);

// Verifies the contract of SolveDeadline: the schedule is optimal for its own length (1 to 4), and
//   5. the schedule is no longer than `deadline`;
//   6. `price` is at least `price_floor`;
//   7. `price` is above `price_floor` only if the schedule is as long as the deadline, or if more
//      time saves nothing (`extra_energy` is 0).
// If all seven hold, no schedule within the deadline has less extra energy + price_floor * length.
// Proof: let `time` be the length of the schedule. By 1 to 4, any schedule of length T has at least
// extra_energy + price * (time - T). First, let T < time (a shorter schedule). It needs at least
// price * (time - T) more energy. By 6, this is at least price_floor * (time - T), which is what it
// saves by its length. Second, let T > time (a longer schedule within the deadline). Then time <
// deadline. So by 7, there are two cases. Either price equals price_floor, and the longer schedule
// saves no more than its length costs. Or extra_energy is 0, and the longer schedule saves nothing.
Result<void> CheckDeadline(const Network& network, const Solution& solution, Nanoseconds deadline,
                           Microwatts price_floor);

// A lower bound on the frontier: E(T) >= value - price * T for every T.
struct SupportingLine {
  Femtojoules value = 0;
  Microwatts price = 0;

  Femtojoules At(Nanoseconds time) const { return value - price * time; }
};

// Returns the energy of a schedule. It is an upper bound on E(T) for every T that is at least the
// length of the schedule. Fails if the schedule is not feasible (condition 1 above).
Result<Femtojoules> CheckSchedule(const Network& network, std::span<const Nanoseconds> event_times);

// Returns the lower bound that a flow proves. The flow need not be optimal (weak duality). Fails if
// the flow is negative or not balanced (condition 2 above).
Result<SupportingLine> CheckFlow(const Network& network, std::span<const Microwatts> flow,
                                 Microwatts price);

// A point of the frontier: E(time), as extra energy.
struct Breakpoint {
  Nanoseconds time = 0;
  Femtojoules extra_energy = 0;
};

// Verifies, in exact integers, that the points (slowest first) are on a decreasing convex function
// with the least value 0. Each point must be faster than the previous one. The price of time
// between them must be a positive whole number of microwatts, and must never fall.
Result<void> CheckConvex(std::span<const Breakpoint> points);

}  // namespace perseus::frontier
