// The proof that belongs to an optimum, and its checker.
//
// A Solution has event times (a schedule) and a flow (prices). The event times alone prove that a
// schedule exists. The flow alone proves a lower bound on every plan (weak duality). If the two
// agree arc by arc, both are optimal. A check is one pass over the arcs, so the planner (plan/)
// makes it in release builds too: CheckDeadline for every deadline that it solves; for a frontier,
// CheckConvex over all points, and CheckOptimality at the fastest. (The tests check optimality at
// every point.)
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
//   2. the flow into each node equals the flow out of it, and `price` flows from source to sink
//      (the prices are consistent);
//   3. the flow of every arc is between the slopes on either side of its length (complementary
//      slackness): no flow beyond the slowest time, exactly the slope strictly inside a segment,
//      between the two slopes at a vertex, at least the steepest slope at the fastest time;
//   4. `extra_energy` is the energy of those lengths.
// Then no schedule of the same length has less energy. Fails with the first violation and its arc.
Result<void> CheckOptimality(const Network& network, const Solution& solution);

// Verifies the contract of SolveDeadline. The schedule is optimal for its own length (1 to 4), and
//   5. the schedule is no longer than `deadline`;
//   6. `price` is at least `price_floor`;
//   7. `price` is above `price_floor` only if the schedule is as long as the deadline, or if more
//      time saves nothing (`extra_energy` is 0).
// Then no schedule within the deadline has less extra energy + price_floor * length. Proof: by 1 to
// 4, any schedule of length T has at least extra_energy + price * (time - T). A shorter schedule
// (T < time) needs at least price * (time - T) more energy, which by 6 is no less than the
// price_floor * (time - T) that its length saves. A longer one (T > time) within the deadline
// exists only if time < deadline. By 7, price is then equal to price_floor, so it saves no more
// than its length costs, or extra_energy is 0, so it saves nothing.
Result<void> CheckDeadline(const Network& network, const Solution& solution, Nanoseconds deadline,
                           Microwatts price_floor);

// A lower bound on the frontier: E(T) >= value - price * T for every T.
struct SupportingLine {
  Femtojoules value = 0;
  Microwatts price = 0;

  Femtojoules At(Nanoseconds time) const { return value - price * time; }
};

// The energy of a schedule: an upper bound on E(T) for every T of at least its length. Fails if the
// schedule is not feasible (1).
Result<Femtojoules> CheckSchedule(const Network& network, std::span<const Nanoseconds> event_times);

// The bound that a flow proves, whether it is optimal or not (weak duality). Fails if the flow is
// negative or not balanced (2).
Result<SupportingLine> CheckFlow(const Network& network, std::span<const Microwatts> flow,
                                 Microwatts price);

// A point of the frontier: E(time), as the extra energy.
struct Breakpoint {
  Nanoseconds time = 0;
  Femtojoules extra_energy = 0;
};

// Verifies, in exact integers, that the points (slowest first) are on a decreasing convex function
// whose least value is 0: each point is faster than the one before, and the price of time between
// them is a positive whole number of microwatts, and is never below the previous price.
Result<void> CheckConvex(std::span<const Breakpoint> points);

}  // namespace perseus::frontier
