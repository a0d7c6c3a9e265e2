#include "perseus/frontier/walk.h"

#include <algorithm>
#include <numeric>

namespace perseus {

Walk::Walk(const Network& network) : source_(network.source), sink_(network.sink) {
  std::vector<std::int32_t> first(network.curves.size());
  for (std::size_t c = 0; c < network.curves.size(); ++c) {
    first[c] = static_cast<std::int32_t>(times_.size());
    const Curve& curve = network.curves[c];
    times_.insert(times_.end(), curve.times.begin(), curve.times.end());
    slopes_.insert(slopes_.end(), curve.slopes.begin(), curve.slopes.end());
    slopes_.push_back(0);
  }
  const auto early = EarliestTimes(network, Pace::kSlowest);
  node_time_ = early;
  late_.assign(network.nodes, 0);
  links_.resize(network.nodes);
  family_.resize(network.nodes);
  time_ = early[sink_];
  first_incident_.assign(network.nodes + 1, 0);
  arcs_.resize(network.arcs.size());
  for (std::size_t i = 0; i < arcs_.size(); ++i) {
    const Arc& a = network.arcs[i];
    const Curve& c = network.curves[a.curve];
    arcs_[i].tail = a.tail;
    arcs_[i].head = a.head;
    arcs_[i].first_vertex = first[a.curve];
    arcs_[i].last = static_cast<std::int32_t>(c.times.size()) - 1;
    arcs_[i].position = 2 * arcs_[i].last + 1;
    ++first_incident_[a.tail + 1];
    ++first_incident_[a.head + 1];
    const Nanoseconds length = early[a.head] - early[a.tail];
    if (length == c.slowest() && links_[a.head].parent < 0 && a.head != sink_) {
      links_[a.head] = {0, arcs_[i].last == 0 ? kUnbounded : c.slopes.back(), a.tail, static_cast<std::int32_t>(i)};
      Attach(a.head, a.tail);
      arcs_[i].position = 2 * arcs_[i].last;
    }
  }
  std::partial_sum(first_incident_.begin(), first_incident_.end(), first_incident_.begin());
  incident_.resize(2 * arcs_.size());
  auto slot = first_incident_;
  for (std::size_t i = 0; i < arcs_.size(); ++i) {
    incident_[slot[arcs_[i].tail]++] = {arcs_[i].head, static_cast<std::int32_t>(i)};
    incident_[slot[arcs_[i].head]++] = {arcs_[i].tail, static_cast<std::int32_t>(i)};
  }
  late_[sink_] = 1;
  for (std::int32_t k = first_incident_[sink_]; k < first_incident_[sink_ + 1]; ++k) Watch(incident_[k].arc);
}

void Walk::Attach(std::int32_t node, std::int32_t parent) {
  Family& n = family_[node];
  Family& p = family_[parent];
  n.next = p.first_child;
  n.prev = -1;
  if (n.next >= 0) family_[n.next].prev = node;
  p.first_child = node;
}

void Walk::Detach(std::int32_t node) {
  Family& n = family_[node];
  if (n.prev >= 0) family_[n.prev].next = n.next; else family_[links_[node].parent].first_child = n.next;
  if (n.next >= 0) family_[n.next].prev = n.prev;
}

Nanoseconds Walk::EventTime(const ArcState& a) const {
  const bool h = late_[a.head];
  if (late_[a.tail] == h) return -1;
  const int j = a.position >> 1;
  const Nanoseconds length = Length(a);
  if (h) return time_ - (length - times_[a.first_vertex + j]);
  if (j == a.last) return -1;
  return time_ - (times_[a.first_vertex + j + 1] - length);
}

void Walk::Watch(std::int32_t i) {
  ArcState& a = arcs_[i];
  const Nanoseconds t = EventTime(a);
  if (t < 0 || t == a.queued) return;
  a.queued = t;
  ++statistics_.heap_pushes;
  heap_.push_back({t, i});
  std::push_heap(heap_.begin(), heap_.end());
}

void Walk::Pivot(std::int32_t entering) {
  ++statistics_.pivots;
  ArcState& e = arcs_[entering];
  const bool e_forward = late_[e.head];
  const std::int32_t u = e_forward ? e.tail : e.head;
  const std::int32_t w = e_forward ? e.head : e.tail;
  const int vertex = e_forward ? e.position >> 1 : (e.position >> 1) + 1;
  Microwatts bottleneck;
  const Microwatts lo = slopes_[e.first_vertex + vertex];
  const Microwatts hi = vertex == 0 ? kUnbounded : slopes_[e.first_vertex + vertex - 1];
  bottleneck = hi == kUnbounded ? kUnbounded : hi - lo;
  Microwatts e_up, e_down;  // residual u->w, w->u
  e_up = bottleneck;
  e_down = 0;
  std::int32_t leaving_node = -1;
  bool leaving_early = false;
  std::int32_t x = u, y = w;
  while (x != source_ || y != sink_) {
    ++statistics_.path_length;
    if (x != source_) {
      const Link& l = links_[x];
      if (l.down < bottleneck) { bottleneck = l.down; leaving_node = x; leaving_early = true; if (bottleneck == 0) break; }
      x = l.parent;
    }
    if (y != sink_) {
      const Link& l = links_[y];
      if (l.up < bottleneck) { bottleneck = l.up; leaving_node = y; leaving_early = false; if (bottleneck == 0) break; }
      y = l.parent;
    }
  }
  if (bottleneck > kUnbounded / 2) { at_end_ = true; return; }
  if (bottleneck > 0) {
    price_ += bottleneck;
    stall_ = 0;
    e_up -= bottleneck;
    e_down += bottleneck;
    for (std::int32_t v = u; v != source_; v = links_[v].parent) {
      links_[v].down -= bottleneck;
      links_[v].up += bottleneck;
    }
    for (std::int32_t v = w; v != sink_; v = links_[v].parent) {
      links_[v].up -= bottleneck;
      links_[v].down += bottleneck;
    }
  } else {
    ++statistics_.degenerate;
    statistics_.longest_stall = std::max(statistics_.longest_stall, ++stall_);
  }
  if (leaving_node < 0) {
    ++statistics_.same_arc;
    e.position += e_forward ? -2 : 2;
    Watch(entering);
    return;
  }
  e.position += e_forward ? -1 : 1;
  // cut off
  {
    const std::int32_t leaving = links_[leaving_node].arc;
    ArcState& l = arcs_[leaving];
    const bool l_forward = leaving_early ? l.head == leaving_node : l.tail == leaving_node;
    l.position += l_forward ? -1 : 1;
  }
  // reroot at the entering end
  std::int32_t node = leaving_early ? u : w, parent = leaving_early ? w : u;
  // Link from node to parent: up = residual node->parent
  Link link = leaving_early ? Link{e_up, e_down, parent, entering} : Link{e_down, e_up, parent, entering};
  while (true) {
    const Link old = links_[node];
    Detach(node);
    links_[node] = link;
    Attach(node, link.parent);
    if (node == leaving_node) break;
    link = Link{old.down, old.up, node, old.arc};
    node = old.parent;
  }
  // move
  moved_.assign(1, leaving_early ? u : w);
  const Nanoseconds change = leaving_early ? shift_ : -shift_;
  for (std::size_t q = 0; q < moved_.size(); ++q) {
    const std::int32_t v = moved_[q];
    late_[v] = leaving_early;
    node_time_[v] += change;
    for (std::int32_t c = family_[v].first_child; c >= 0; c = family_[c].next) moved_.push_back(c);
  }
  statistics_.nodes_moved += moved_.size();
  for (const std::int32_t v : moved_) {
    for (std::int32_t k = first_incident_[v]; k < first_incident_[v + 1]; ++k) {
      const Neighbor n = incident_[k];
      if (late_[n.node] != leaving_early) Watch(n.arc);
    }
  }
}

void Walk::Advance(Nanoseconds stop) {
  const Microwatts before = price();
  const Nanoseconds start = time_;
  while (!at_end_) {
    while (!heap_.empty() && (arcs_[heap_.front().arc].queued != heap_.front().time || EventTime(arcs_[heap_.front().arc]) != heap_.front().time)) {
      if (arcs_[heap_.front().arc].queued == heap_.front().time) arcs_[heap_.front().arc].queued = -1;
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.pop_back();
    }
    const Nanoseconds next = heap_.empty() ? stop : std::max(stop, heap_.front().time);
    if (time_ != start && price() != before && next != time_) return;
    energy_ += static_cast<Femtojoules>(price()) * (time_ - next);
    if (next != time_) stall_ = 0;
    shift_ += time_ - next;
    time_ = next;
    if (heap_.empty() || heap_.front().time < stop) return;
    const std::int32_t i = heap_.front().arc;
    arcs_[i].queued = -1;
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    Pivot(i);
  }
}

std::vector<Nanoseconds> Walk::EventTimes() const {
  std::vector<Nanoseconds> t;
  for (std::size_t n = 0; n < node_time_.size(); ++n) t.push_back(TimeOf(static_cast<std::int32_t>(n)));
  return t;
}

}  // namespace perseus
