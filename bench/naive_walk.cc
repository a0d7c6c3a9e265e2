#include "bench/naive_walk.h"

#include <algorithm>
#include <limits>

namespace perseus {
namespace {

constexpr Microwatts kUnbounded = Microwatts{1} << 61;  // Larger than any sum of slopes.

class NaiveWalk {
 public:
  explicit NaiveWalk(const frontier::Network& network);
  std::vector<FrontierVertex> Run();

 private:
  using Index = std::size_t;
  static Index At(std::int32_t i) { return static_cast<Index>(i); }

  // times[vertex - 1] < length <= times[vertex], or vertex == times.size() beyond the slowest.
  struct State {
    Microwatts flow = 0;
    Index vertex = 0;
  };
  struct Step {
    std::int32_t arc = -1;
    bool along = true;  // Whether the step goes from the tail of the arc to its head.
  };

  Nanoseconds Length(const frontier::Arc& arc) const {
    return times_[At(arc.head)] - times_[At(arc.tail)];
  }
  Microwatts RoomToRise(Index arc) const;
  Microwatts RoomToFall(Index arc) const;
  bool ReachSink();
  Microwatts SendFlow();
  Nanoseconds LargestShift() const;
  void Shift(Nanoseconds by);

  const frontier::Network& network_;
  std::vector<Nanoseconds> times_;
  std::vector<State> states_;
  std::vector<std::vector<Step>> steps_;  // [node] the steps along its arcs.
  std::vector<std::uint8_t> reached_;
  std::vector<Step> reached_by_;
  std::vector<std::int32_t> queue_;
};

NaiveWalk::NaiveWalk(const frontier::Network& network)
    : network_(network),
      times_(frontier::EarliestTimes(network, frontier::Pace::kSlowest)),
      states_(network.arcs.size()),
      steps_(At(network.nodes)),
      reached_by_(At(network.nodes)) {
  for (Index i = 0; i < network.arcs.size(); ++i) {
    const frontier::Arc& arc = network.arcs[i];
    const profile::Curve& curve = network.curve_of(arc);
    states_[i].vertex = curve.times.size() - (Length(arc) > curve.slowest() ? 0 : 1);
    steps_[At(arc.tail)].push_back({static_cast<std::int32_t>(i), true});
    steps_[At(arc.head)].push_back({static_cast<std::int32_t>(i), false});
  }
}

// The highest flow at this length is the slope on its fast side, and the lowest flow is the slope
// on its slow side. Strictly inside a segment, both are the same.
Microwatts NaiveWalk::RoomToRise(Index arc) const {
  const profile::Curve& curve = network_.curve_of(network_.arcs[arc]);
  const State& state = states_[arc];
  if (state.vertex == curve.times.size()) return 0;
  return (state.vertex == 0 ? kUnbounded : curve.slopes[state.vertex - 1]) - state.flow;
}

Microwatts NaiveWalk::RoomToFall(Index arc) const {
  const profile::Curve& curve = network_.curve_of(network_.arcs[arc]);
  const State& state = states_[arc];
  if (state.vertex == curve.times.size()) return 0;
  if (Length(network_.arcs[arc]) < curve.times[state.vertex]) return 0;
  return state.flow - (state.vertex < curve.slopes.size() ? curve.slopes[state.vertex] : 0);
}

bool NaiveWalk::ReachSink() {
  reached_.assign(At(network_.nodes), 0);
  reached_[At(network_.source)] = 1;
  queue_.assign(1, network_.source);
  for (Index next = 0; next < queue_.size(); ++next) {
    for (const Step& step : steps_[At(queue_[next])]) {
      const frontier::Arc& arc = network_.arcs[At(step.arc)];
      const std::int32_t other = step.along ? arc.head : arc.tail;
      if (reached_[At(other)] != 0) continue;
      if ((step.along ? RoomToRise(At(step.arc)) : RoomToFall(At(step.arc))) == 0) continue;
      reached_[At(other)] = 1;
      reached_by_[At(other)] = step;
      if (other == network_.sink) return true;
      queue_.push_back(other);
    }
  }
  return false;
}

// Sends as much flow as fits along the path that ReachSink found, and returns the amount. If the
// path has no limit, changes nothing.
Microwatts NaiveWalk::SendFlow() {
  const auto for_each_step = [&](auto&& visit) {
    for (std::int32_t node = network_.sink; node != network_.source;) {
      const Step& step = reached_by_[At(node)];
      visit(step);
      const frontier::Arc& arc = network_.arcs[At(step.arc)];
      node = step.along ? arc.tail : arc.head;
    }
  };
  Microwatts amount = kUnbounded;
  for_each_step([&](const Step& step) {
    amount = std::min(amount, step.along ? RoomToRise(At(step.arc)) : RoomToFall(At(step.arc)));
  });
  if (amount > kUnbounded / 2) return amount;
  for_each_step(
      [&](const Step& step) { states_[At(step.arc)].flow += step.along ? amount : -amount; });
  return amount;
}

// How far the nodes that were not reached can move earlier until an arc arrives at a vertex.
Nanoseconds NaiveWalk::LargestShift() const {
  Nanoseconds shift = std::numeric_limits<Nanoseconds>::max();
  for (Index i = 0; i < network_.arcs.size(); ++i) {
    const frontier::Arc& arc = network_.arcs[i];
    if (reached_[At(arc.tail)] == reached_[At(arc.head)]) continue;
    const std::vector<Nanoseconds>& vertices = network_.curve_of(arc).times;
    const Index vertex = states_[i].vertex;
    const Nanoseconds length = Length(arc);
    if (reached_[At(arc.tail)] != 0) {  // The arc gets shorter.
      shift = std::min(shift, length - vertices[vertex - 1]);
    } else if (vertex < vertices.size() && length < vertices[vertex]) {
      shift = std::min(shift, vertices[vertex] - length);
    } else if (vertex + 1 < vertices.size()) {
      shift = std::min(shift, vertices[vertex + 1] - length);
    }
  }
  return shift;
}

void NaiveWalk::Shift(Nanoseconds by) {
  for (Index node = 0; node < times_.size(); ++node) {
    if (reached_[node] == 0) times_[node] -= by;
  }
  for (Index i = 0; i < network_.arcs.size(); ++i) {
    const std::vector<Nanoseconds>& vertices = network_.curve_of(network_.arcs[i]).times;
    const Nanoseconds length = Length(network_.arcs[i]);
    Index& vertex = states_[i].vertex;
    while (vertex > 0 && length <= vertices[vertex - 1]) --vertex;
    while (vertex < vertices.size() && length > vertices[vertex]) ++vertex;
  }
}

std::vector<FrontierVertex> NaiveWalk::Run() {
  const auto time = [&] { return times_[At(network_.sink)]; };
  std::vector<FrontierVertex> frontier = {{time(), 0}};
  Femtojoules extra_energy = 0;
  Microwatts price = 0;
  Microwatts price_before = 0;  // The price of the previous stretch.
  for (;;) {
    if (ReachSink()) {
      const Microwatts amount = SendFlow();
      if (amount > kUnbounded / 2) break;
      price += amount;
      continue;
    }
    if (price != price_before && time() != frontier.back().time) {
      frontier.push_back({time(), extra_energy});
    }
    price_before = price;
    const Nanoseconds by = LargestShift();
    extra_energy += Femtojoules{price} * by;
    Shift(by);
  }
  if (time() != frontier.back().time) frontier.push_back({time(), extra_energy});
  return frontier;
}

}  // namespace

std::vector<FrontierVertex> NaiveFrontier(const frontier::Network& network) {
  return NaiveWalk(network).Run();
}

}  // namespace perseus
