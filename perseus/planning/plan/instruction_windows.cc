#include "perseus/planning/plan/instruction_windows.h"

#include <algorithm>
#include <cstddef>

#include "perseus/base/index.h"

namespace perseus::plan {

InstructionWindows FindWindows(const Planner& planner, Nanoseconds deadline) {
  const schedule::InstructionGraph& graph = planner.graph();
  const std::size_t count = graph.instructions.size();
  InstructionWindows windows{std::vector<Nanoseconds>(count, 0),
                             std::vector<Nanoseconds>(count, deadline)};
  const auto fastest = [&](int instruction) {
    return planner.network().curve_of(planner.network().arcs[At(instruction)]).fastest();
  };
  // The network has the same times at its nodes, but its nodes may stand for several events.
  std::vector<std::vector<std::size_t>> into(count);
  std::vector<std::vector<std::size_t>> out_of(count);
  for (std::size_t d = 0; d < graph.dependencies.size(); ++d) {
    into[At(graph.dependencies[d].to)].push_back(d);
    out_of[At(graph.dependencies[d].from)].push_back(d);
  }
  for (std::size_t i = 0; i < count; ++i) {
    for (const std::size_t d : into[i]) {
      const auto& [from, to, delay] = graph.dependencies[d];
      windows.earliest_starts[i] = std::max(
          windows.earliest_starts[i], windows.earliest_starts[At(from)] + fastest(from) + delay);
    }
  }
  for (std::size_t i = count; i-- > 0;) {
    for (const std::size_t d : out_of[i]) {
      const auto& [from, to, delay] = graph.dependencies[d];
      windows.latest_ends[i] =
          std::min(windows.latest_ends[i], windows.latest_ends[At(to)] - fastest(to) - delay);
    }
  }
  return windows;
}

}  // namespace perseus::plan
