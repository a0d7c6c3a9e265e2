#include "perseus/planning/report/critical_path.h"
#include "perseus/base/index.h"

#include <algorithm>

namespace perseus::report {
namespace {

}  // namespace

std::vector<bool> CriticalOperations(const schedule::OperationGraph& graph, const plan::Evaluation& evaluation) {
  std::vector<std::vector<const schedule::Dependency*>> successors(graph.operations.size());
  for (const schedule::Dependency& dependency : graph.dependencies) {
    successors[At(dependency.from)].push_back(&dependency);
  }
  std::vector<Nanoseconds> latest_starts(graph.operations.size());
  std::vector<bool> critical(graph.operations.size());
  // Operations are in topological order, so what waits for one comes after it.
  for (int i = static_cast<int>(graph.operations.size()) - 1; i >= 0; --i) {
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
