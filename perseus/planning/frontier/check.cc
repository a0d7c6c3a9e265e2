#include "perseus/planning/frontier/check.h"

#include <algorithm>

namespace perseus::frontier {
namespace {

struct FlowRange {
  Microwatts lowest = 0;
  Microwatts highest = 0;
};

// A wrong solution may have flows of any size. With 64 bits, their sum could wrap around and look
// correct.
__extension__ using FlowSum = __int128;

constexpr Microwatts kNoUpperBound = Microwatts::Max();

// The flows that complementary slackness allows on an arc of length `length`. Requires length >=
// curve.fastest().
FlowRange AllowedFlow(const profile::Curve& curve, Nanoseconds length) {
  if (length > curve.slowest()) return {0, 0};
  const auto vertex = std::lower_bound(curve.times.begin(), curve.times.end(), length);
  const auto index = static_cast<std::size_t>(vertex - curve.times.begin());
  const Microwatts before = index == 0 ? kNoUpperBound : curve.slopes[index - 1];
  if (*vertex != length) return {before, before};
  return {index < curve.slopes.size() ? curve.slopes[index] : 0, before};
}

// Returns the extra energy at each vertex of a curve.
std::vector<Femtojoules> EnergiesOfVertices(const profile::Curve& curve) {
  std::vector<Femtojoules> energies(curve.times.size(), 0);
  for (std::size_t j = curve.slopes.size(); j-- > 0;) {
    energies[j] = energies[j + 1] + curve.slopes[j] * (curve.times[j + 1] - curve.times[j]);
  }
  return energies;
}

}  // namespace

Result<void> CheckOptimality(const Network& network, const Solution& solution) {
  const auto nodes = static_cast<std::size_t>(network.nodes);
  if (solution.event_times.size() != nodes || solution.flow.size() != network.arcs.size()) {
    return Fail("the solution has {} event times and {} flows, so it is not of this network",
                solution.event_times.size(), solution.flow.size());
  }
  if (const Nanoseconds start = solution.event_times[static_cast<std::size_t>(network.source)];
      start != 0) {
    return Fail("the source happens at {} ns instead of 0", start);
  }
  std::vector<FlowSum> balance(nodes, 0);
  balance[static_cast<std::size_t>(network.source)] = solution.price.count();
  balance[static_cast<std::size_t>(network.sink)] -= solution.price.count();
  Femtojoules extra_energy = 0;
  for (std::size_t i = 0; i < network.arcs.size(); ++i) {
    const Arc& arc = network.arcs[i];
    const profile::Curve& curve = network.curve_of(arc);
    const Nanoseconds length = solution.event_times[static_cast<std::size_t>(arc.head)] -
                               solution.event_times[static_cast<std::size_t>(arc.tail)];
    const Microwatts flow = solution.flow[i];
    if (length < curve.fastest()) {
      return Fail("arc {} lasts {} ns, less than its fastest {} ns", i, length, curve.fastest());
    }
    const FlowRange allowed = AllowedFlow(curve, length);
    if (flow < allowed.lowest || flow > allowed.highest) {
      return Fail("arc {} of {} ns carries {} uW, outside {}..{}", i, length, flow.count(),
                  allowed.lowest.count(), allowed.highest.count());
    }
    balance[static_cast<std::size_t>(arc.tail)] -= flow.count();
    balance[static_cast<std::size_t>(arc.head)] += flow.count();
    extra_energy += curve.ExtraEnergyAt(length);
  }
  for (std::size_t node = 0; node < nodes; ++node) {
    if (balance[node] != 0) return Fail("node {} keeps {} uW of flow", node, balance[node]);
  }
  if (extra_energy != solution.extra_energy) {
    return Fail("the energy of the solution is not the sum over its arcs");
  }
  return {};
}

Result<void> CheckDeadline(const Network& network, const Solution& solution, Nanoseconds deadline,
                           Microwatts price_floor) {
  if (auto optimal = CheckOptimality(network, solution); !optimal) return optimal;
  const Nanoseconds time = solution.time(network);
  if (time > deadline)
    return Fail("the schedule takes {} ns, longer than the deadline {} ns", time, deadline);
  if (solution.price < price_floor) {
    return Fail("the price {} uW is below the floor {} uW", solution.price.count(),
                price_floor.count());
  }
  if (solution.price > price_floor && time < deadline && solution.extra_energy > 0) {
    return Fail(
        "the schedule takes {} ns of a deadline of {} ns, although its price {} uW is above the "
        "floor {} uW",
        time, deadline, solution.price.count(), price_floor.count());
  }
  return {};
}

Result<Femtojoules> CheckSchedule(const Network& network,
                                  std::span<const Nanoseconds> event_times) {
  if (event_times.size() != static_cast<std::size_t>(network.nodes)) {
    return Fail("the schedule has {} event times, so it is not of this network",
                event_times.size());
  }
  if (const Nanoseconds start = event_times[static_cast<std::size_t>(network.source)]; start != 0) {
    return Fail("the source happens at {} ns instead of 0", start);
  }
  Femtojoules energy = 0;
  for (std::size_t i = 0; i < network.arcs.size(); ++i) {
    const Arc& arc = network.arcs[i];
    const profile::Curve& curve = network.curve_of(arc);
    const Nanoseconds length = event_times[static_cast<std::size_t>(arc.head)] -
                               event_times[static_cast<std::size_t>(arc.tail)];
    if (length < curve.fastest()) {
      return Fail("arc {} lasts {} ns, less than its fastest {} ns", i, length, curve.fastest());
    }
    energy += curve.ExtraEnergyAt(length);
  }
  return energy;
}

Result<SupportingLine> CheckFlow(const Network& network, std::span<const Microwatts> flow,
                                 Microwatts price) {
  const auto nodes = static_cast<std::size_t>(network.nodes);
  if (flow.size() != network.arcs.size()) {
    return Fail("the flow has {} arcs, so it is not of this network", flow.size());
  }
  std::vector<std::vector<Femtojoules>> energies;
  for (const profile::Curve& curve : network.curves) energies.push_back(EnergiesOfVertices(curve));
  std::vector<FlowSum> balance(nodes, 0);
  balance[static_cast<std::size_t>(network.source)] = price.count();
  balance[static_cast<std::size_t>(network.sink)] -= price.count();
  Femtojoules sum = 0;
  for (std::size_t i = 0; i < network.arcs.size(); ++i) {
    const Arc& arc = network.arcs[i];
    if (flow[i] < 0) return Fail("arc {} carries {} uW, less than 0", i, flow[i].count());
    balance[static_cast<std::size_t>(arc.tail)] -= flow[i].count();
    balance[static_cast<std::size_t>(arc.head)] += flow[i].count();
    // f(t) + flow * t is least at the first vertex after which the slope of f is at most the flow.
    const profile::Curve& curve = network.curve_of(arc);
    std::size_t vertex = 0;
    while (vertex < curve.slopes.size() && curve.slopes[vertex] > flow[i]) ++vertex;
    sum += energies[static_cast<std::size_t>(arc.curve)][vertex] + flow[i] * curve.times[vertex];
  }
  for (std::size_t node = 0; node < nodes; ++node) {
    if (balance[node] != 0) return Fail("node {} keeps {} uW of flow", node, balance[node]);
  }
  return SupportingLine{sum, price};
}

Result<void> CheckConvex(std::span<const Breakpoint> points) {
  if (points.empty() || points.front().extra_energy != 0) {
    return Fail("the slowest point is not the cheapest");
  }
  Femtojoules last_price = 1;
  for (std::size_t i = 1; i < points.size(); ++i) {
    const Nanoseconds faster_by = points[i - 1].time - points[i].time;
    if (faster_by <= 0) return Fail("point {} is not faster than the one before", i);
    const Femtojoules costs_more = points[i].extra_energy - points[i - 1].extra_energy;
    const Femtojoules price = costs_more / faster_by;
    if (price * faster_by != costs_more || price < last_price) {
      return Fail(
          "point {} is {} ns faster than the one before, but the price of that time is not whole, "
          "not positive, or below the previous price",
          i, faster_by);
    }
    last_price = price;
  }
  return {};
}

}  // namespace perseus::frontier
