#include "perseus/planning/frontier/network.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

namespace perseus::frontier {
namespace {

// The sets of events that always happen at the same time (union-find with path halving).
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

// Finds the events of an instruction graph that are one node. Event 2i is the start of instruction
// i, and event 2i + 1 is its end. The last two events are the source and the sink.
class GraphEvents {
 public:
  GraphEvents(std::size_t instructions, std::span<const schedule::Dependency> dependencies)
      : instructions_(static_cast<std::int32_t>(instructions)),
        sets_(2 * instructions + 2),
        waits_for_(instructions, 0),
        awaited_by_(instructions, 0) {
    for (const schedule::Dependency& dependency : dependencies) {
      ++waits_for_[static_cast<std::size_t>(dependency.to)];
      ++awaited_by_[static_cast<std::size_t>(dependency.from)];
    }
    for (std::int32_t i = 0; i < instructions_; ++i) {
      if (waits_for_[static_cast<std::size_t>(i)] == 0) sets_.Unite(Start(i), source());
      if (awaited_by_[static_cast<std::size_t>(i)] == 0) sets_.Unite(End(i), sink());
    }
    for (const schedule::Dependency& dependency : dependencies) {
      if (Coincide(dependency)) sets_.Unite(Start(dependency.to), End(dependency.from));
    }
  }

  static std::int32_t Start(std::int32_t instruction) { return 2 * instruction; }
  static std::int32_t End(std::int32_t instruction) { return 2 * instruction + 1; }
  std::int32_t source() const { return 2 * instructions_; }
  std::int32_t sink() const { return source() + 1; }

  // Whether the successor can start exactly when its predecessor ends, without a loss. This is so
  // if nothing else waits for that end, or if the successor waits for nothing else.
  bool Coincide(const schedule::Dependency& dependency) const {
    return dependency.delay == 0 && (waits_for_[static_cast<std::size_t>(dependency.to)] == 1 ||
                                     awaited_by_[static_cast<std::size_t>(dependency.from)] == 1);
  }

  // The event that represents all events in the same set as `event`.
  std::int32_t Find(std::int32_t event) { return sets_.Find(event); }

 private:
  std::int32_t instructions_;
  EventSets sets_;
  std::vector<std::int32_t> waits_for_;   // [instruction] how many instructions it waits for.
  std::vector<std::int32_t> awaited_by_;  // [instruction] how many instructions wait for it.
};

Result<void> CheckSumOfDurations(const Network& network) {
  Nanoseconds total = 0;
  for (const Arc& arc : network.arcs) {
    const Nanoseconds slowest = network.curve_of(arc).slowest();
    // An eighth of the range leaves room for sums and differences of event times.
    if (slowest > std::numeric_limits<Nanoseconds>::max() / 8 - total) {
      return Fail(
          "the durations of all instructions add up to more than 36 years, which does not fit the "
          "planner's nanoseconds (check that the times in the profile are in seconds)");
    }
    total += slowest;
  }
  return {};
}

// Checks the sum of the steepest slopes, because a flow can be as large as this sum.
Result<void> CheckSumOfSlopes(const Network& network) {
  Microwatts steepest = 0;
  for (std::int32_t i = 0; i < network.instructions; ++i) {
    const profile::Curve& curve = network.curve_of(network.arcs[static_cast<std::size_t>(i)]);
    if (curve.slopes.empty()) continue;
    if (curve.slopes.front() > kMostPower - steepest) {
      return Fail(
          "the savings of all instructions add up to more than {:.0f} W, which does not fit the "
          "planner's microwatts (check that the energies in the profile are in joules)",
          ToWatts(kMostPower));
    }
    steepest += curve.slopes.front();
  }
  return {};
}

// Makes the nodes and arcs. Nodes are numbered in the order in which arcs refer to them.
Network ConnectEvents(std::span<const profile::Curve> curves,
                      std::span<const std::int32_t> curve_of_instruction,
                      std::span<const schedule::Dependency> dependencies) {
  GraphEvents events(curve_of_instruction.size(), dependencies);
  Network network;
  network.instructions = static_cast<std::int32_t>(curve_of_instruction.size());
  network.curves.assign(curves.begin(), curves.end());
  std::vector<std::int32_t> node_of_event(2 * curve_of_instruction.size() + 2, -1);
  const auto node_of = [&](std::int32_t event) {
    std::int32_t& node = node_of_event[static_cast<std::size_t>(events.Find(event))];
    if (node < 0) node = network.nodes++;
    return node;
  };
  network.source = node_of(events.source());
  network.arcs.reserve(curve_of_instruction.size() + dependencies.size());
  for (std::int32_t i = 0; i < network.instructions; ++i) {
    network.arcs.push_back({node_of(GraphEvents::Start(i)), node_of(GraphEvents::End(i)),
                            curve_of_instruction[static_cast<std::size_t>(i)]});
  }
  std::map<Nanoseconds, std::int32_t> curve_of_delay;
  for (const schedule::Dependency& dependency : dependencies) {
    network.arc_of_dependency.push_back(-1);
    if (events.Coincide(dependency)) continue;
    const auto [found, inserted] = curve_of_delay.try_emplace(
        dependency.delay, static_cast<std::int32_t>(network.curves.size()));
    if (inserted) network.curves.push_back(profile::Curve{{dependency.delay}, {}, {}, 0});
    network.arc_of_dependency.back() = static_cast<std::int32_t>(network.arcs.size());
    network.arcs.push_back({node_of(GraphEvents::End(dependency.from)),
                            node_of(GraphEvents::Start(dependency.to)), found->second});
  }
  network.sink = node_of(events.sink());
  return network;
}

}  // namespace

Result<Network> BuildNetwork(std::span<const profile::Curve> curves,
                             std::span<const std::int32_t> curve_of_instruction,
                             std::span<const schedule::Dependency> dependencies) {
  if (curve_of_instruction.empty()) {
    return Fail("the graph has no instructions (add at least one)");
  }
  Network network = ConnectEvents(curves, curve_of_instruction, dependencies);
  PERSEUS_RETURN_IF_ERROR(CheckSumOfDurations(network));
  PERSEUS_RETURN_IF_ERROR(CheckSumOfSlopes(network));
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
