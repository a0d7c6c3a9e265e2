// The solver inside SolveDeadline: event times and prices that satisfy
//
//     flow on an arc could rise  =>  t[head] - t[tail] >= duration at the flow just above it    (1)
//     flow on an arc could fall  =>  t[head] - t[tail] <= duration at the flow just below it    (2)
//
// where an arc's flow is the slope of its convex curve. Together they are optimal for the schedule
// (times) and for its dual, a circulation of least convex cost (flow).
//
// Method: cost scaling (Goldberg & Tarjan 1990; "partial augment-relabel", Goldberg 2008, and the
// "global update" heuristic of Goldberg 1997). (1) and (2) may be violated by epsilon. Each phase
//
//   1. divides epsilon by 16,
//   2. makes the schedule feasible: no arc shorter than its fastest time, nobody late. Without this
//      the next step would have to send flow without end through the arcs that are too short, and
//      the rest of the phase would go into bringing it back (1.6 times the time, measured),
//   3. sets each arc's flow to what its length asks for, which leaves some nodes with too much,
//   4. pushes the excess to where flow is missing, along arcs that violate (1) or (2) slightly,
//      raising the potentials (times) of nodes that have no such arc. Late in a phase a little
//      excess at a few nodes has to reach many that each lack a little; then the problem is looked
//      at in the mirror, and those many pull at the same time (a fifth to a half of the work,
//      measured).
//
// Curves are never expanded into parallel arcs: an arc knows the vertex that its flow is at and
// looks one ahead.
//
// Times are multiplied by nodes + 1, so that a flow with epsilon = 1 is exactly optimal. We
// hardly ever get there. Below two microseconds few cycles are left whose cost is negative, in
// whole nanoseconds, and cancelling them one by one (Goldberg & Tarjan 1989) beats more phases. The
// search for them is that of Goldberg & Radzik (1993) for shortest paths: passes over the nodes in
// topological order of the arcs that are violated or tight. When nothing is violated its times are
// the answer and the proof. It gives up, for another phase, when it has looked too long.
//
// Tried and lost: LEMON's network simplex (twice slower at 1,536 instructions), curves expanded
// into ten times as many arcs (no faster, ten times the memory), numbering nodes by time (no
// faster), leaving a little excess to the next phase (slower), Bellman-Ford with a queue instead of
// topological passes (four times slower, and where the flow was not optimal yet, thirty times).
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <vector>

#include "perseus/base/units.h"

namespace perseus::frontier {

// Nodes are events; node 0 happens at 0. Times and durations are any integers whose sums along a
// path, times 8 * (nodes + 1), fit 64 bits.
struct TimingProblem {
  struct Arc {
    std::int32_t tail = 0;
    std::int32_t head = 0;
    std::int32_t first_vertex = 0;  // Of its curve, the fastest.
    std::int32_t segments = 0;      // One less than the curve's vertices.
  };

  std::int32_t nodes = 0;
  std::vector<Arc> arcs;
  // Per vertex, curve after curve: its duration and the slope after it, 0 after a curve's last.
  std::vector<Nanoseconds> durations;
  std::vector<Microwatts> slopes;
  // Flow that comes into the problem at each node; sums to 0.
  std::vector<Microwatts> supply;
  // When each node can happen in a feasible schedule; and a guess. Node 0: [0, 0].
  std::vector<Nanoseconds> earliest;
  std::vector<Nanoseconds> latest;
  std::vector<Nanoseconds> guess;
  // Arcs such that moving their heads later one after the other, just far enough for the arc's
  // fastest duration, turns any times within [earliest, latest] into a feasible schedule.
  std::vector<std::int32_t> repair_order;
};

struct TimingSolution {
  std::vector<Nanoseconds> times;  // [node]
  std::vector<Microwatts> flow;    // [arc]
};

// Requires that some schedule is feasible. Nothing if `stop` is requested before it is done.
std::optional<TimingSolution> SolveByCostScaling(const TimingProblem& problem,
                                                 const std::stop_token& stop);

}  // namespace perseus::frontier
