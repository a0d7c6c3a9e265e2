// The planner's problem as an activity-on-arc network.
//
// Nodes are events, such as "stage 2 has finished forward 5". An arc limits how much later its head
// happens than its tail. It also states how much energy more time saves. With potentials pi (event
// times), arc a = (u, v) lasts pi[v] - pi[u]. It has to last at least curve.fastest(). It saves
// energy along its curve up to curve.slowest(). An instruction is an arc with its time-energy
// curve. A dependency ("b waits for a") is an arc, too: its curve has only one vertex, at the delay
// between the two, and more time saves nothing. So the solvers have to handle only one kind of arc.
//
//         [F0 s0]        [F0 s1]                    o--->o  an instruction or a dependency
//     o------------->o------------->o
//   source           |              |
//                    |  [F1 s0]     v  [B0 s1]
//                    o------------->o------------->o sink
//
// If two events can always happen at the same time without a loss, they are one node: if b waits
// only for a, or if only b waits for the end of a, then b can start when a ends. A 1F1B iteration
// of n instructions gives about 2n nodes and 3n arcs.
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
  // [dependency] Its arc, or -1 if the two events are one node.
  std::vector<std::int32_t> arc_of_dependency;

  const profile::Curve& curve_of(const Arc& arc) const {
    return curves[static_cast<std::size_t>(arc.curve)];
  }
};

// The maximum power that all instructions together may save with more time: 2^59 uW. In the
// solvers, a larger number stands for "unbounded".
inline constexpr Microwatts kMostPower(std::int64_t{1} << 59);

// The relaxation of `graph`: curves[i] is the curve of graph.option_sets[i]. Requires
// graph.instructions in topological order. Fails (kInput) if the graph has no instructions. Also
// fails if the sum of all durations, or of all slopes, does not fit the 64-bit integers of the
// solvers.
Result<Network> BuildNetwork(const schedule::InstructionGraph& graph,
                             std::span<const profile::Curve> curves);

// The same from bare parts, for tests and for callers without an InstructionGraph: instruction i
// has curves[curve_of_instruction[i]].
Result<Network> BuildNetwork(std::span<const profile::Curve> curves,
                             std::span<const std::int32_t> curve_of_instruction,
                             std::span<const schedule::Dependency> dependencies);

// The arcs in topological order: each arc comes after all arcs that end at its tail. One pass over
// them carries a value from the source to the sink. One pass backward carries a value from the sink
// to the source.
std::vector<std::int32_t> ArcsInOrder(const Network& network);

// Returns the earliest time of each node: the longest path from the source. Every arc runs at its
// fastest, or every arc at its slowest (cheapest). The time of the sink is the makespan.
enum class Pace { kFastest, kSlowest };
std::vector<Nanoseconds> EarliestTimes(const Network& network, Pace pace);

}  // namespace perseus::frontier
