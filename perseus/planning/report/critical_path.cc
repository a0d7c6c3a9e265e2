#include "perseus/planning/report/critical_path.h"

#include <algorithm>

#include "perseus/base/index.h"

namespace perseus::report {

std::vector<bool> CriticalInstructions(const schedule::InstructionGraph& graph,
                                       const plan::Evaluation& evaluation) {
  std::vector<std::vector<const schedule::Dependency*>> successors(graph.instructions.size());
  for (const schedule::Dependency& dependency : graph.dependencies) {
    successors[At(dependency.from)].push_back(&dependency);
  }
  std::vector<Nanoseconds> latest_starts(graph.instructions.size());
  std::vector<bool> critical(graph.instructions.size());
  // Instructions are in topological order, so the successors of each come later.
  for (int i = static_cast<int>(graph.instructions.size()) - 1; i >= 0; --i) {
    Nanoseconds latest_end = evaluation.time;
    for (const schedule::Dependency* dependency : successors[At(i)]) {
      latest_end = std::min(latest_end, latest_starts[At(dependency->to)] - dependency->delay);
    }
    latest_starts[At(i)] = latest_end - evaluation.durations[At(i)];
    critical[At(i)] = latest_starts[At(i)] == evaluation.starts[At(i)];
  }
  return critical;
}

}  // namespace perseus::report
