// The whole time-energy frontier, exactly, in one walk from slow to fast.
//
// The problem. Let E(T) be the least total cost of the network's arcs over all schedules of length
// at most T (network.h; costs are Curve::ExtraEnergyAt). E is convex, decreasing and piecewise
// linear. The walk starts at the length where everything runs at its cheapest, E = 0, and shortens
// the schedule until nothing can run faster, stopping at every breakpoint on the way.
//
// The idea (Fulkerson 1961; Kelley 1961; Phillips & Dessouky 1977). Shortening the schedule by dt
// means shifting some set of events, the sink's among them, dt earlier. Arcs that cross into the
// set get shorter, which costs the slope of their curve; arcs that cross out of it get longer,
// which gives the slope back. The cheapest set is a minimum cut, its cost the maximum flow from
// source to sink, where the bounds on an arc's flow are the slopes on either side of its present
// length:
//
//     slope                     . at a vertex of the curve, flow may be anywhere between the slopes
//       |\                        before and after: the arc is rigid, and flow can be rerouted
//       | \___                  . strictly inside a segment, flow is exactly the slope: the arc
//       |     \____               bends, and no flow can be rerouted
//       |__________\____  time  . beyond the slowest vertex, flow is 0
//
// So the flow value is the marginal price of time, and it never has to be computed afresh: after
// the shift, lengths have changed until some crossing arc arrives at a vertex; there its bounds
// widen, flow grows, some other arc's bound is hit, and that arc starts to bend.
//
// The mechanism. Rigid arcs form two trees that together span all nodes: the early tree hangs from
// the source, the late tree from the sink. Nodes of the early tree are fixed, those of the late
// tree move together. Only arcs between the trees change length; a heap holds when each arrives at
// its next vertex. When one does (the *entering* arc), it joins the trees to a path from source to
// sink. As much flow as the path takes is sent; the arc whose bound is hit (the *leaving* arc)
// bends from then on, and the part of its tree that it cut off now hangs, by the entering arc, from
// the other tree. This is a network simplex pivot; it costs the path plus the nodes that change
// trees.
//
// What makes it fast, measured on 8 stages x 96 microbatches of GPT-3 (docs/benchmarks.md):
//   - Flow and trees are carried along. Searching for the cut afresh after every step costs 3.5
//     times as much; keeping only the tree from the source, 2.4 times as much.
//   - Nine of ten pivots are degenerate (the path takes no more flow: many microbatches are alike).
//     Any arc of the path that is at its bound may leave then, so the path is followed from the
//     entering arc in both directions at once, only up to the nearest one, and the smaller pieces
//     move. Breaking the ties by perturbing the slopes instead costs 12 times as much.
//   - A late node's time is stored relative to the sink, so a shift touches no node.
//
// Termination. A pivot shortens the schedule, or raises the flow, or neither. Runs of the last kind
// could in principle cycle; after as many as there are arcs, the walk picks entering and leaving
// arcs by smallest index (Bland 1977), which cannot cycle, until it gets on.
//
// Limits: integers throughout, no tolerances. Times up to 36 years in sum, slopes up to 5.7e17
// microwatts in sum (BuildNetwork checks both).
#pragma once

#include <cstdint>
#include <iterator>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/planning/frontier/check.h"
#include "perseus/planning/frontier/network.h"

namespace perseus::frontier {

class Walk {
 public:
  // Stands at the slow end: time() is the length when every instruction runs at its cheapest. After
  // more than `patience` pivots in a row without progress the walk turns to Bland's rule (so 0 is
  // for tests of that rule); by default after as many as there are arcs.
  explicit Walk(const Network& network) : Walk(network, std::ssize(network.arcs)) {}
  Walk(const Network& network, std::int64_t patience);

  Nanoseconds time() const { return time_; }
  // What the next nanosecond of shortening costs.
  Microwatts price() const { return price_; }
  // E(time()).
  Femtojoules extra_energy() const { return extra_energy_; }
  // The schedule cannot get shorter.
  bool finished() const { return finished_; }

  // Shortens the schedule at the present price until that price ends (a breakpoint of E), until
  // `stop`, or until it is finished. Between calls price() is that of the next stretch.
  void Advance(Nanoseconds stop);

  // The optimum at time(), with its proof.
  Solution solution() const;

  struct Statistics {
    std::int64_t pivots = 0;
    std::int64_t degenerate_pivots = 0;
    std::int64_t nodes_moved = 0;
    std::int64_t longest_stall = 0;  // Pivots in a row without progress.
  };
  const Statistics& statistics() const { return statistics_; }

 private:
  enum class Side : std::uint8_t { kEarly, kLate };

  // An arc of the network and where it is on its curve: at vertex j (position 2j: the arc is rigid,
  // in a tree), or on the stretch after vertex j (position 2j + 1: it bends; flow is that slope).
  struct ArcState {
    std::int32_t tail;
    std::int32_t head;
    std::int32_t first_vertex;  // Of its curve, in vertex_times_ and slopes_after_.
    std::int32_t slowest;       // Index of the curve's last vertex.
    std::int32_t position;
    Nanoseconds queued = kNone;  // The arrival that stands for it in the heap.

    bool rigid() const { return position % 2 == 0; }
    std::int32_t vertex() const { return position / 2; }
  };

  // From a node to its parent in its tree, and the room for more flow either way.
  struct Link {
    Microwatts up = 0;
    Microwatts down = 0;
    std::int32_t parent = -1;
    std::int32_t arc = -1;
  };
  struct Siblings {
    std::int32_t first_child = -1;
    std::int32_t next = -1;
    std::int32_t previous = -1;
  };
  struct Neighbor {
    std::int32_t node;
    std::int32_t arc;
  };
  // When the schedule is `time` long, the arc arrives at its next vertex.
  struct Arrival {
    Nanoseconds time;
    std::int32_t arc;
    // Heap order: longest schedule first, then smallest index (Bland's rule needs the latter).
    bool operator<(const Arrival& other) const {
      return time != other.time ? time < other.time : arc > other.arc;
    }
  };
  struct Bottleneck {
    Microwatts room = 0;
    std::int32_t node = -1;  // Whose link is the leaving arc; -1: the entering arc itself.
    Side side = Side::kEarly;
  };

  static constexpr Nanoseconds kNone = -1;
  static constexpr Microwatts kUnbounded = Microwatts{1} << 61;
  static std::size_t At(std::int32_t i) { return static_cast<std::size_t>(i); }

  void BuildIncidence();
  void PlantTrees();

  Nanoseconds TimeOf(std::int32_t node) const {
    return node_times_[At(node)] - (sides_[At(node)] == Side::kLate ? shift_ : 0);
  }
  Nanoseconds Length(const ArcState& arc) const { return TimeOf(arc.head) - TimeOf(arc.tail); }
  Microwatts SlopeAfter(const ArcState& arc, std::int32_t vertex) const {
    return slopes_after_[At(arc.first_vertex + vertex)];
  }
  Microwatts SlopeBefore(const ArcState& arc, std::int32_t vertex) const {
    return vertex == 0 ? kUnbounded : SlopeAfter(arc, vertex - 1);
  }

  Nanoseconds NextArrival(const ArcState& arc) const;
  void Watch(std::int32_t arc);
  void DropStaleArrivals();
  void Pivot(std::int32_t entering);
  Bottleneck FindBottleneck(std::int32_t early_end, std::int32_t late_end, Microwatts room) const;
  void SendFlow(std::int32_t early_end, std::int32_t late_end, Microwatts amount);
  void Rehang(std::int32_t from, std::int32_t to, Link link);
  void ChangeSide(std::int32_t root, Side side);
  void Attach(std::int32_t node, std::int32_t parent);
  void Detach(std::int32_t node);

  std::int32_t source_;
  std::int32_t sink_;
  std::vector<Nanoseconds> vertex_times_;
  std::vector<Microwatts> slopes_after_;
  std::vector<ArcState> arcs_;
  std::vector<std::int32_t> first_neighbor_;  // By node, into neighbors_.
  std::vector<Neighbor> neighbors_;

  std::vector<Nanoseconds> node_times_;  // Of late nodes: as if nothing had been shifted since.
  std::vector<Side> sides_;
  std::vector<Link> links_;
  std::vector<Siblings> siblings_;
  std::vector<Arrival> arrivals_;      // A heap.
  std::vector<std::int32_t> changed_;  // Of ChangeSide.

  Nanoseconds shift_ = 0;  // How much shorter the schedule is than at the start.
  Nanoseconds time_ = 0;
  Microwatts price_ = 0;
  Femtojoules extra_energy_ = 0;
  std::int64_t patience_;
  std::int64_t stall_ = 0;
  bool finished_ = false;
  Statistics statistics_;
};

}  // namespace perseus::frontier
