#include "perseus/planning/frontier/walk.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace perseus::frontier {

Walk::Walk(const Network& network, std::int64_t most_stalled)
    : source_(network.source), sink_(network.sink), most_stalled_(most_stalled) {
  std::vector<std::int32_t> first_vertex;
  for (const profile::Curve& curve : network.curves) {
    first_vertex.push_back(static_cast<std::int32_t>(vertex_times_.size()));
    vertex_times_.insert(vertex_times_.end(), curve.times.begin(), curve.times.end());
    slopes_after_.insert(slopes_after_.end(), curve.slopes.begin(), curve.slopes.end());
    slopes_after_.push_back(0);
  }
  arcs_.reserve(network.arcs.size());
  for (const Arc& arc : network.arcs) {
    const auto slowest = static_cast<std::int32_t>(network.curve_of(arc).slopes.size());
    arcs_.push_back({arc.tail, arc.head, first_vertex[At(arc.curve)], slowest, 2 * slowest + 1});
  }
  node_times_ = EarliestTimes(network, Pace::kSlowest);
  time_ = node_times_[At(sink_)];
  sides_.assign(At(network.nodes), Side::kEarly);
  links_.resize(At(network.nodes));
  siblings_.resize(At(network.nodes));
  changed_.resize(At(network.nodes));
  BuildIncidence();
  BuildTrees();
  Advance(time_);  // Finds the first price.
}

void Walk::BuildIncidence() {
  first_neighbor_.assign(node_times_.size() + 1, 0);
  for (const ArcState& arc : arcs_) {
    ++first_neighbor_[At(arc.tail) + 1];
    ++first_neighbor_[At(arc.head) + 1];
  }
  std::partial_sum(first_neighbor_.begin(), first_neighbor_.end(), first_neighbor_.begin());
  neighbors_.resize(2 * arcs_.size());
  std::vector<std::int32_t> slot(first_neighbor_.begin(), first_neighbor_.end() - 1);
  for (std::size_t i = 0; i < arcs_.size(); ++i) {
    const ArcState& arc = arcs_[i];
    neighbors_[At(slot[At(arc.tail)]++)] = {arc.head, static_cast<std::int32_t>(i)};
    neighbors_[At(slot[At(arc.head)]++)] = {arc.tail, static_cast<std::int32_t>(i)};
  }
}

// At the slow end, every node except the source waits for an arc at its slowest time. These arcs
// form the early tree. The late tree has only the sink.
void Walk::BuildTrees() {
  for (std::size_t i = 0; i < arcs_.size(); ++i) {
    ArcState& arc = arcs_[i];
    if (arc.head == sink_ || links_[At(arc.head)].parent >= 0) continue;
    if (Length(arc) != vertex_times_[At(arc.first_vertex + arc.slowest)]) continue;
    arc.position = 2 * arc.slowest;
    links_[At(arc.head)] = {0, SlopeBefore(arc, arc.slowest), arc.tail,
                            static_cast<std::int32_t>(i)};
    Attach(arc.head, arc.tail);
  }
  ChangeSide(sink_, Side::kLate);
}

void Walk::Attach(std::int32_t node, std::int32_t parent) {
  Siblings& self = siblings_[At(node)];
  std::int32_t& first = siblings_[At(parent)].first_child;
  self.next = first;
  self.previous = -1;
  if (first >= 0) siblings_[At(first)].previous = node;
  first = node;
}

void Walk::Detach(std::int32_t node) {
  const Siblings& self = siblings_[At(node)];
  if (self.next >= 0) siblings_[At(self.next)].previous = self.previous;
  if (self.previous >= 0) {
    siblings_[At(self.previous)].next = self.next;
  } else {
    siblings_[At(links_[At(node)].parent)].first_child = self.next;
  }
}

// The length of the schedule at which a bending arc between the trees arrives at its next vertex.
// kNone if the arc never arrives.
Nanoseconds Walk::NextArrival(const ArcState& arc) const {
  const Side head = sides_[At(arc.head)];
  if (sides_[At(arc.tail)] == head || arc.rigid()) return kNone;
  const auto vertex = At(arc.first_vertex + arc.vertex());
  if (head == Side::kLate) return time_ - (Length(arc) - vertex_times_[vertex]);  // It shrinks.
  if (arc.vertex() == arc.slowest) return kNone;
  return time_ - (vertex_times_[vertex + 1] - Length(arc));
}

void Walk::Watch(std::int32_t index) {
  ArcState& arc = arcs_[At(index)];
  const Nanoseconds time = NextArrival(arc);
  if (time == arc.queued || time < 0) return;
  arc.queued = time;
  arrivals_.push_back({time, index});
  std::push_heap(arrivals_.begin(), arrivals_.end());
}

// Removes arrivals that are no longer valid. After an arrival was queued, both ends of its arc may
// have come into the same tree, or the time of the arrival may have changed.
void Walk::DropStaleArrivals() {
  while (!arrivals_.empty()) {
    const Arrival& next = arrivals_.front();
    ArcState& arc = arcs_[At(next.arc)];
    const bool latest = arc.queued == next.time;
    if (latest && NextArrival(arc) == next.time) return;
    if (latest) arc.queued = kNone;
    std::pop_heap(arrivals_.begin(), arrivals_.end());
    arrivals_.pop_back();
  }
}

void Walk::Advance(Nanoseconds stop) {
  bool moved = false;
  const Microwatts price = price_;
  while (!finished_) {
    DropStaleArrivals();
    const Nanoseconds arrival = arrivals_.empty() ? kNone : arrivals_.front().time;
    const Nanoseconds next = std::max(stop, arrival);
    if (next < time_) {
      if (moved && price_ != price) return;  // A breakpoint: the next stretch has another price.
      extra_energy_ += price_ * (time_ - next);
      shift_ += time_ - next;
      time_ = next;
      stall_ = 0;
      moved = true;
    }
    if (arrival < stop || arrival == kNone) return;
    const std::int32_t entering = arrivals_.front().arc;
    arcs_[At(entering)].queued = kNone;
    std::pop_heap(arrivals_.begin(), arrivals_.end());
    arrivals_.pop_back();
    Pivot(entering);
  }
}

// Follows the path from the entering arc to source and sink, and finds the link with the least
// room. If several links have no room, takes the nearest to the entering arc. Then a smaller part
// of a tree changes sides. In a long stall, takes the arc with the smallest index.
Walk::Bottleneck Walk::FindBottleneck(std::int32_t early_end, std::int32_t late_end,
                                      Microwatts room) const {
  Bottleneck found{room, -1, Side::kEarly};
  const bool stalled = stall_ > most_stalled_;
  const auto consider = [&](std::int32_t node, Microwatts link_room, Side side) {
    const bool first = stalled && link_room == found.room && found.node >= 0 &&
                       links_[At(node)].arc < links_[At(found.node)].arc;
    if (link_room < found.room || first) found = {link_room, node, side};
  };
  std::int32_t early = early_end;
  std::int32_t late = late_end;
  while ((early != source_ || late != sink_) && (found.room > 0 || stalled)) {
    if (early != source_) {
      consider(early, links_[At(early)].down, Side::kEarly);
      early = links_[At(early)].parent;
    }
    if (late != sink_ && (found.room > 0 || stalled)) {
      consider(late, links_[At(late)].up, Side::kLate);
      late = links_[At(late)].parent;
    }
  }
  return found;
}

void Walk::SendFlow(std::int32_t early_end, std::int32_t late_end, Microwatts amount) {
  for (std::int32_t node = early_end; node != source_; node = links_[At(node)].parent) {
    links_[At(node)].down -= amount;
    links_[At(node)].up += amount;
  }
  for (std::int32_t node = late_end; node != sink_; node = links_[At(node)].parent) {
    links_[At(node)].up -= amount;
    links_[At(node)].down += amount;
  }
  price_ += amount;
}

void Walk::Pivot(std::int32_t entering) {
  ++statistics_.pivots;
  ArcState& arc = arcs_[At(entering)];
  const bool shrinks = sides_[At(arc.head)] == Side::kLate;
  const std::int32_t early_end = shrinks ? arc.tail : arc.head;
  const std::int32_t late_end = shrinks ? arc.head : arc.tail;

  // The arc is at a vertex, so its flow may change from the slope on one side of the vertex to the
  // slope on the other side. If the arc gets longer, its flow falls.
  arc.position += shrinks ? -1 : 1;
  const Microwatts before = SlopeBefore(arc, arc.vertex());
  const Microwatts room =
      before == kUnbounded ? kUnbounded : before - SlopeAfter(arc, arc.vertex());
  const Bottleneck bottleneck = FindBottleneck(early_end, late_end, room);
  if (bottleneck.room > kUnbounded / 2) {
    finished_ = true;  // All arcs on this path are at their fastest.
    arc.position += shrinks ? 1 : -1;
    return;
  }
  if (bottleneck.room > 0) {
    SendFlow(early_end, late_end, bottleneck.room);
    stall_ = 0;
  } else {
    ++statistics_.degenerate_pivots;
    statistics_.longest_stall = std::max(statistics_.longest_stall, ++stall_);
  }
  if (bottleneck.node < 0) {  // The entering arc passes this vertex and bends again.
    arc.position += shrinks ? -1 : 1;
    Watch(entering);
    return;
  }

  // The leaving arc begins to bend. It gets shorter if it has no more room in its own direction.
  const std::int32_t cut_off = bottleneck.node;
  const bool was_early = bottleneck.side == Side::kEarly;
  ArcState& leaving = arcs_[At(links_[At(cut_off)].arc)];
  const bool flows_along = (leaving.head == cut_off) == was_early;
  leaving.position += flows_along ? -1 : 1;

  // The entering arc connects the cut-off part to the other tree.
  const Microwatts left =
      room == kUnbounded ? kUnbounded - bottleneck.room : room - bottleneck.room;
  if (was_early) {
    Rehang(early_end, cut_off, {left, bottleneck.room, late_end, entering});
    ChangeSide(early_end, Side::kLate);
  } else {
    Rehang(late_end, cut_off, {bottleneck.room, left, early_end, entering});
    ChangeSide(late_end, Side::kEarly);
  }
}

// Sets `link` as the link of `from`. Reverses the links on the path from `from` up to `to`: the
// former child of each further node becomes its parent.
void Walk::Rehang(std::int32_t from, std::int32_t to, Link link) {
  for (std::int32_t node = from;;) {
    const Link former = links_[At(node)];
    Detach(node);
    links_[At(node)] = link;
    Attach(node, link.parent);
    if (node == to) return;
    link = {former.down, former.up, node, former.arc};
    node = former.parent;
  }
}

// Moves `root` and its subtree to the other side. Then watches the arcs that now cross between the
// trees.
void Walk::ChangeSide(std::int32_t root, Side side) {
  const std::span<std::int32_t> changed = changed_;  // It has room for all nodes.
  const Nanoseconds later = side == Side::kLate ? shift_ : -shift_;
  std::size_t count = 0;
  changed[count++] = root;
  for (std::size_t next = 0; next < count; ++next) {
    const std::int32_t node = changed[next];
    sides_[At(node)] = side;
    node_times_[At(node)] += later;
    for (std::int32_t child = siblings_[At(node)].first_child; child >= 0;
         child = siblings_[At(child)].next) {
      changed[count++] = child;
    }
  }
  statistics_.nodes_moved += static_cast<std::int64_t>(count);
  for (const std::int32_t node : changed.first(count)) {
    for (std::int32_t i = first_neighbor_[At(node)]; i < first_neighbor_[At(node) + 1]; ++i) {
      const Neighbor& neighbor = neighbors_[At(i)];
      if (sides_[At(neighbor.node)] != side) Watch(neighbor.arc);
    }
  }
}

Solution Walk::solution() const {
  Solution solution;
  solution.price = price_;
  solution.extra_energy = extra_energy_;
  for (std::int32_t node = 0; At(node) < node_times_.size(); ++node) {
    solution.event_times.push_back(TimeOf(node));
  }
  for (const ArcState& arc : arcs_) solution.flow.push_back(SlopeAfter(arc, arc.vertex()));
  // For a rigid arc, the link contains the part of the flow above the slope after the vertex.
  for (std::int32_t node = 0; At(node) < links_.size(); ++node) {
    const Link& link = links_[At(node)];
    if (link.arc < 0) continue;
    const ArcState& arc = arcs_[At(link.arc)];
    solution.flow[At(link.arc)] += arc.head == node ? link.up : link.down;
  }
  return solution;
}

}  // namespace perseus::frontier
