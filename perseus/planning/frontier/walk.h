// The whole time-energy frontier, exactly, in one walk from the slow end to the fast end.
//
// PROBLEM
//   Given: a network of arcs with convex curves (network.h).
//   E(T) is the least total extra energy of the arcs (Curve::ExtraEnergyAt) over all schedules of
//   length at most T. E is convex, decreasing and piecewise linear. Compute every breakpoint of E.
//
// NOTATION
//   symbol      meaning                                         name here
//   a = (u, v)  an arc from node u to node v                    ArcState, tail, head
//   f_a         the convex curve of arc a                       vertex_times_, slopes_after_
//   pi_u        the time of event u (a potential)               TimeOf(node)
//   pi_v - pi_u the length of arc a                             Length(arc)
//   x_a         the flow of arc a, in microwatts                Link::up, Link::down (its room)
//   lambda      the value of the flow, -dE/dT                   price()
//   T           the length of the schedule                      time()
//   E(T)        the least extra energy                          extra_energy()
//   n, m        the number of nodes and arcs
// Phillips & Dessouky call an arc an activity, and the slope of its curve its crash cost.
// Fulkerson's times and flow are our pi and x. In Chung et al. (SOSP '24), the network is the
// Critical DAG, and its flow bounds are the Capacity DAG.
//
// IDEA (Fulkerson 1961; Kelley 1961; Phillips & Dessouky 1977)
//   To shorten the schedule by dt, shift a set of events dt earlier. The set contains the sink.
//   Arcs that cross into the set become shorter. For each unit of time, this costs energy: the
//   slope of their curve. Arcs that cross out of the set become longer. For each unit of time, this
//   saves the slope of their curve. The set with the least total cost is a minimum cut. Its cost is
//   the maximum flow from source to sink. The bounds of the flow of an arc are the slopes before
//   and after the present length of the arc:
//
//     slope                     . at a vertex of the curve, the flow may be anywhere between the
//       |\                        slopes before and after: the arc is rigid, and flow can be
//       | \___                    rerouted
//       |     \____             . strictly inside a segment, the flow is exactly the slope: the
//       |__________\____  time    arc bends, and no flow can be rerouted
//                               . beyond the slowest vertex, the flow is 0
//
//   So the value of the flow is the marginal price of time. The walk never computes the flow from
//   zero. It shifts the events until a crossing arc arrives at a vertex of its curve. There, the
//   bounds of this arc widen and the flow grows, until another arc is at its bound and starts to
//   bend.
//
// MECHANISM
//   Rigid arcs form two trees that together span all nodes: the root of the early tree is the
//   source, and the root of the late tree is the sink. Nodes of the early tree are fixed. Nodes of
//   the late tree move together. Only arcs between the trees change their length. A heap contains
//   the time at which each of these arcs arrives at its next vertex. The arc that arrives (the
//   *entering* arc) connects the trees, so that there is a path from source to sink. The walk sends
//   as much flow as the path can carry. One arc of the path (the *leaving* arc) reaches its bound
//   and bends from then on. It cuts off a part of its tree. The entering arc attaches this part to
//   the other tree. This is a pivot of the network simplex method.
//
// COMPLEXITY
//   One pivot takes O(path + nodes that change trees + their arcs * log m): at most O(m log m).
//   Memory is O(m + vertices of all curves). No polynomial bound on the number of pivots is known:
//   on artificial networks, E itself can have exponentially many breakpoints. On training
//   iterations, the number of pivots is about the number of breakpoints times the number of
//   microbatches. Measured time for n instructions: n^0.97 with more microbatches, n^1.9 to n^2.2
//   when stages and microbatches grow together.
//
// WHAT MAKES IT FAST, measured on 8 stages x 96 microbatches of GPT-3 (docs/benchmarks.md):
//   - The walk keeps the flow and the trees from step to step. With a new search for the cut after
//     every step, it takes 3.5 times as long. With only the tree from the source, it takes 2.4
//     times as long.
//   - Nine of ten pivots are degenerate: the path can carry no more flow, because many microbatches
//     are alike. Then any arc of the path that is at its bound may leave. So the walk follows the
//     path from the entering arc in both directions at once, only up to the nearest such arc. It
//     moves the smaller parts of the trees. With perturbed slopes, pivots would not be degenerate,
//     but the walk would take 12 times as long.
//   - The time of a late node is stored relative to the sink, so a shift touches no node.
//
// TERMINATION
//   A pivot shortens the schedule, or raises the flow, or is stalled (does neither). In principle,
//   stalled pivots could repeat in a cycle. Suppose that as many pivots in a row are stalled as the
//   network has arcs. Then the walk chooses entering and leaving arcs by smallest index (Bland
//   1977) until it makes progress. With this rule, no cycle is possible.
//
// LIMITS
//   All numbers are integers, without tolerances. The times may add up to 36 years, and the slopes
//   to 5.7e17 microwatts (BuildNetwork checks both). For one deadline of a large job, deadline.h is
//   faster.
//
// REFERENCES
//   D. R. Fulkerson, A Network Flow Computation for Project Cost Curves,
//     Management Science 7 (1961).
//   J. E. Kelley, Critical-Path Planning and Scheduling, Operations Research 9 (1961).
//   S. Phillips and M. I. Dessouky, Solving the Project Time/Cost Tradeoff Problem Using the
//     Minimal Cut Concept, Management Science 24 (1977).
//   R. G. Bland, New Finite Pivoting Rules for the Simplex Method, Math. of Operations Research 2
//     (1977).
//   R. K. Ahuja, T. L. Magnanti and J. B. Orlin, Network Flows (1993), chapters 11 and 14.
#pragma once

#include <cstdint>
#include <iterator>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/base/units.h"
#include "perseus/planning/frontier/check.h"
#include "perseus/planning/frontier/network.h"

namespace perseus::frontier {

class Walk {
 public:
  // Starts at the slow end: time() is the length of the schedule when every instruction runs at its
  // cheapest. After more than `most_stalled` pivots in a row without progress, the walk uses
  // Bland's rule. The default is the number of arcs. (0 is for tests of that rule.)
  explicit Walk(const Network& network) : Walk(network, std::ssize(network.arcs)) {}
  Walk(const Network& network, std::int64_t most_stalled);

  Nanoseconds time() const { return time_; }
  // The extra energy per nanosecond for the next nanosecond by which the schedule gets shorter.
  Microwatts price() const { return price_; }
  // The least extra energy of a schedule of this length: E(time()).
  Femtojoules extra_energy() const { return extra_energy_; }
  // Whether the schedule has its least possible length.
  bool finished() const { return finished_; }

  // Shortens the schedule until the price changes (a breakpoint of E), until the schedule is `stop`
  // long, or until it is finished. After the call, price() is the price of the next stretch.
  void Advance(Nanoseconds stop);

  // The optimum at time(), with its proof.
  Solution solution() const;

  struct Statistics {
    std::int64_t pivots = 0;
    std::int64_t degenerate_pivots = 0;
    std::int64_t nodes_moved = 0;
    std::int64_t longest_stall = 0;  // The most pivots in a row without progress.
  };
  const Statistics& statistics() const { return statistics_; }

 private:
  enum class Side : std::uint8_t { kEarly, kLate };

  // An arc of the network and its place on its curve. Position 2j is at vertex j: the arc is rigid
  // and in a tree. Position 2j + 1 is on the stretch after vertex j: the arc bends, and its flow is
  // the slope.
  struct ArcState {
    std::int32_t tail;
    std::int32_t head;
    std::int32_t first_vertex;  // The first vertex of its curve in vertex_times_, slopes_after_.
    std::int32_t slowest;       // The last vertex of its curve.
    std::int32_t position;
    Nanoseconds queued = kNone;  // The time of its valid arrival in the heap.

    bool rigid() const { return position % 2 == 0; }
    std::int32_t vertex() const { return position / 2; }
  };

  // The arc from a node to its parent in its tree, and the room for more flow in either direction.
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
  // The arc arrives at its next vertex when the schedule is `time` long.
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
    std::int32_t node = -1;  // -1: the entering arc. Otherwise, the link of this node leaves.
    Side side = Side::kEarly;
  };

  static constexpr Nanoseconds kNone = -1;
  static constexpr Microwatts kUnbounded{std::int64_t{1} << 61};

  void BuildIncidence();
  void BuildTrees();

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
  std::vector<std::int32_t> first_neighbor_;  // [node] an index into neighbors_.
  std::vector<Neighbor> neighbors_;

  std::vector<Nanoseconds> node_times_;  // [node] For a late node, its time plus shift_.
  std::vector<Side> sides_;
  std::vector<Link> links_;
  std::vector<Siblings> siblings_;
  std::vector<Arrival> arrivals_;      // A heap.
  std::vector<std::int32_t> changed_;  // The scratch memory of ChangeSide.

  Nanoseconds shift_ = 0;  // How much shorter the schedule is than at the start.
  Nanoseconds time_ = 0;
  Microwatts price_ = 0;
  Femtojoules extra_energy_ = 0;
  std::int64_t most_stalled_;
  std::int64_t stall_ = 0;
  bool finished_ = false;
  Statistics statistics_;
};

}  // namespace perseus::frontier
