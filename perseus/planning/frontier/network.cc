#include "perseus/planning/frontier/network.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

namespace perseus::frontier {
namespace {

// Sets of events that coincide (union-find with path halving).
class EventSets {
 public:
  explicit EventSets(std::size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  std::int32_t Find(std::int32_t event) {
    while (parent(event) != event) {
      parent(event) = parent(parent(event));
      event = parent(event);
    }
    return event;
  }
  void Unite(std::int32_t a, std::int32_t b) { parent(Find(a)) = Find(b); }

 private:
  std::int32_t& parent(std::int32_t event) { return parent_[static_cast<std::size_t>(event)]; }
  std::vector<std::int32_t> parent_;
};

}  // namespace

Result<Network> BuildNetwork(std::span<const profile::Curve> curves,
                             std::span<const std::int32_t> curve_of_instruction,
                             std::span<const schedule::Dependency> dependencies) {
  const std::size_t instructions = curve_of_instruction.size();
  if (instructions == 0) return Fail("the graph has no instructions (nothing to plan)");

  // Event 2i is the start of instruction i and 2i + 1 its end; then the source and the sink.
  const auto start = [](std::int32_t instruction) { return 2 * instruction; };
  const auto end = [](std::int32_t instruction) { return 2 * instruction + 1; };
  const auto source = static_cast<std::int32_t>(2 * instructions);
  const std::int32_t sink = source + 1;
  EventSets events(2 * instructions + 2);

  std::vector<std::int32_t> waits_for(instructions, 0);   // Dependencies into each instruction,
  std::vector<std::int32_t> awaited_by(instructions, 0);  // and out of it.
  for (const schedule::Dependency& dependency : dependencies) {
    ++waits_for[static_cast<std::size_t>(dependency.to)];
    ++awaited_by[static_cast<std::size_t>(dependency.from)];
  }
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(instructions); ++i) {
    if (waits_for[static_cast<std::size_t>(i)] == 0) events.Unite(start(i), source);
    if (awaited_by[static_cast<std::size_t>(i)] == 0) events.Unite(end(i), sink);
  }
  const auto coincide = [&](const schedule::Dependency& dependency) {
    return dependency.delay == 0 && (waits_for[static_cast<std::size_t>(dependency.to)] == 1 ||
                                     awaited_by[static_cast<std::size_t>(dependency.from)] == 1);
  };
  for (const schedule::Dependency& dependency : dependencies) {
    if (coincide(dependency)) events.Unite(start(dependency.to), end(dependency.from));
  }

  Network network;
  network.instructions = static_cast<std::int32_t>(instructions);
  network.curves.assign(curves.begin(), curves.end());
  std::vector<std::int32_t> node_of_event(2 * instructions + 2, -1);
  const auto node_of = [&](std::int32_t event) {
    std::int32_t& node = node_of_event[static_cast<std::size_t>(events.Find(event))];
    if (node < 0) node = network.nodes++;
    return node;
  };
  network.source = node_of(source);
  network.arcs.reserve(instructions + dependencies.size());
  for (std::int32_t i = 0; i < network.instructions; ++i) {
    network.arcs.push_back(
        {node_of(start(i)), node_of(end(i)), curve_of_instruction[static_cast<std::size_t>(i)]});
  }
  std::map<Nanoseconds, std::int32_t> curve_of_delay;
  for (const schedule::Dependency& dependency : dependencies) {
    network.arc_of_dependency.push_back(-1);
    if (coincide(dependency)) continue;
    const auto [found, inserted] = curve_of_delay.try_emplace(
        dependency.delay, static_cast<std::int32_t>(network.curves.size()));
    if (inserted) network.curves.push_back(profile::Curve{{dependency.delay}, {}, {}, 0});
    network.arc_of_dependency.back() = static_cast<std::int32_t>(network.arcs.size());
    network.arcs.push_back(
        {node_of(end(dependency.from)), node_of(start(dependency.to)), found->second});
  }
  network.sink = node_of(sink);

  Nanoseconds total = 0;
  for (const Arc& arc : network.arcs) {
    const Nanoseconds slowest = network.curve_of(arc).slowest();
    // An eighth of the range leaves room for sums and differences of event times.
    if (slowest > std::numeric_limits<Nanoseconds>::max() / 8 - total) {
      return Fail(
          "the durations of all instructions add up to more than 36 years, which does not "
          "fit the planner's nanoseconds (are the profile's times in seconds?)");
    }
    total += slowest;
  }
  // No flow exceeds the sum of the steepest slopes; the solvers keep infinity above it.
  constexpr Microwatts kMostPower = Microwatts{1} << 59;
  Microwatts steepest = 0;
  for (std::int32_t i = 0; i < network.instructions; ++i) {
    const profile::Curve& curve = network.curve_of(network.arcs[static_cast<std::size_t>(i)]);
    if (curve.slopes.empty()) continue;
    if (curve.slopes.front() > kMostPower - steepest) {
      return Fail(
          "the power that could be saved adds up to more than {:.0f} W, which does not fit "
          "the planner's microwatts (are the profile's energies in joules?)",
          ToWatts(kMostPower));
    }
    steepest += curve.slopes.front();
  }
  return network;
}

Result<Network> BuildNetwork(const schedule::InstructionGraph& graph,
                             std::span<const profile::Curve> curves) {
  std::vector<std::int32_t> curve_of_instruction;
  curve_of_instruction.reserve(graph.instructions.size());
  for (const schedule::InstructionNode& instruction : graph.instructions) {
    curve_of_instruction.push_back(instruction.option_set);
  }
  return BuildNetwork(curves, curve_of_instruction, graph.dependencies);
}

// Arcs in an order in which each follows all arcs into its tail.
std::vector<std::int32_t> ArcsInOrder(const Network& network) {
  const auto nodes = static_cast<std::size_t>(network.nodes);
  std::vector<std::int32_t> arcs_into(nodes, 0);
  std::vector<std::int32_t> first_out(nodes + 1, 0);
  for (const Arc& arc : network.arcs) {
    ++arcs_into[static_cast<std::size_t>(arc.head)];
    ++first_out[static_cast<std::size_t>(arc.tail) + 1];
  }
  std::partial_sum(first_out.begin(), first_out.end(), first_out.begin());
  std::vector<std::int32_t> by_tail(network.arcs.size());
  std::vector<std::int32_t> next_slot(first_out.begin(), first_out.end() - 1);
  for (std::size_t i = 0; i < network.arcs.size(); ++i) {
    const auto tail = static_cast<std::size_t>(network.arcs[i].tail);
    by_tail[static_cast<std::size_t>(next_slot[tail]++)] = static_cast<std::int32_t>(i);
  }
  std::vector<std::int32_t> ready;
  ready.reserve(nodes);
  for (std::int32_t node = 0; node < network.nodes; ++node) {
    if (arcs_into[static_cast<std::size_t>(node)] == 0) ready.push_back(node);
  }
  std::vector<std::int32_t> order;
  order.reserve(network.arcs.size());
  for (std::size_t next = 0; next < ready.size(); ++next) {
    const auto node = static_cast<std::size_t>(ready[next]);
    for (std::int32_t i = first_out[node]; i < first_out[node + 1]; ++i) {
      const std::int32_t arc = by_tail[static_cast<std::size_t>(i)];
      order.push_back(arc);
      const std::int32_t head = network.arcs[static_cast<std::size_t>(arc)].head;
      if (--arcs_into[static_cast<std::size_t>(head)] == 0) ready.push_back(head);
    }
  }
  return order;
}

std::vector<Nanoseconds> EarliestTimes(const Network& network, Pace pace) {
  std::vector<Nanoseconds> times(static_cast<std::size_t>(network.nodes), 0);
  for (const std::int32_t i : ArcsInOrder(network)) {
    const Arc& arc = network.arcs[static_cast<std::size_t>(i)];
    const profile::Curve& curve = network.curve_of(arc);
    const Nanoseconds duration = pace == Pace::kFastest ? curve.fastest() : curve.slowest();
    Nanoseconds& head = times[static_cast<std::size_t>(arc.head)];
    head = std::max(head, times[static_cast<std::size_t>(arc.tail)] + duration);
  }
  return times;
}

}  // namespace perseus::frontier
