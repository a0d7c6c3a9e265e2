// The planner's problem as an activity-on-arc network.
//
// Nodes are events ("stage 2 has finished forward 5"); an arc says how much later its head must
// happen than its tail, and what it saves to let it be later. With potentials pi (event times), arc
// a = (u, v) lasts pi[v] - pi[u], must last at least curve.fastest(), and saves energy down its
// curve until curve.slowest(). An instruction is an arc with its time-energy curve. "b waits for a"
// is an arc too: a curve with one vertex at the delay between them, which saves nothing by waiting.
// So there is one kind of arc, and the solvers know no other.
//
//         [F0 s0]        [F0 s1]                    o--->o  an instruction or a dependency
//     o------------->o------------->o
//   source           |              |
//                    |  [F1 s0]     v  [B0 s1]
//                    o------------->o------------->o sink
//
// Events that may as well coincide are one node: where b waits for a alone, or a's end is awaited
// by b alone, then letting b start when a ends costs nothing. A 1F1B iteration of n instructions
// gives about 2n nodes and 3n arcs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/profile/curve.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::frontier {

struct Arc {
  std::int32_t tail = 0;
  std::int32_t head = 0;
  std::int32_t curve = 0;
};

struct Network {
  std::int32_t nodes = 0;
  std::int32_t source = 0;
  std::int32_t sink = 0;
  std::vector<Arc> arcs;  // arcs[i] is instruction i for i < instructions; then the dependencies.
  std::vector<profile::Curve> curves;
  std::int32_t instructions = 0;
  // [dependency]: its arc, or -1 where the two events coincide.
  std::vector<std::int32_t> arc_of_dependency;

  const profile::Curve& curve_of(const Arc& arc) const {
    return curves[static_cast<std::size_t>(arc.curve)];
  }
};

// The relaxation of `graph`: curves[i] is that of graph.option_sets[i]. Requires graph.instructions
// to be in topological order. Fails (kInput) if all durations, or all slopes, add up to more than
// the solvers' 64-bit integers take.
Result<Network> BuildNetwork(const schedule::InstructionGraph& graph,
                             std::span<const profile::Curve> curves);

// The same from bare parts, for tests and for callers without an InstructionGraph: instruction i
// has curves[curve_of_instruction[i]].
Result<Network> BuildNetwork(std::span<const profile::Curve> curves,
                             std::span<const std::int32_t> curve_of_instruction,
                             std::span<const schedule::Dependency> dependencies);

// The arcs in an order in which each follows all arcs into its tail: one pass over them carries
// something from the source to the sink, one pass backward from the sink to the source.
std::vector<std::int32_t> ArcsInOrder(const Network& network);

// For each node the earliest time it can happen when every arc runs at its fastest, or at its
// slowest (cheapest): the longest path from the source. The sink's is the makespan.
enum class Pace { kFastest, kSlowest };
std::vector<Nanoseconds> EarliestTimes(const Network& network, Pace pace);

}  // namespace perseus::frontier
