#include "perseus/planning/schedule/topological_order.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>

#include "perseus/base/index.h"

namespace perseus::schedule {
namespace {

// When Kahn's algorithm ends, each instruction that still waits waits for another such instruction.
// So a walk backward from any of them reaches an instruction for the second time.
std::vector<int> FindCycle(const InstructionGraph& graph, const std::vector<int>& waiting_for) {
  std::vector<int> before(graph.instructions.size(), -1);
  int current = -1;
  for (const Dependency& dependency : graph.dependencies) {
    if (waiting_for[At(dependency.from)] == 0) continue;
    before[At(dependency.to)] = dependency.from;
    current = dependency.to;
  }
  std::vector<bool> seen(graph.instructions.size());
  while (!seen[At(current)]) {
    seen[At(current)] = true;
    current = before[At(current)];
  }
  std::vector<int> cycle;
  const int start = current;
  do {
    cycle.push_back(current);
    current = before[At(current)];
  } while (current != start);
  std::reverse(cycle.begin(), cycle.end());
  return cycle;
}

}  // namespace

TopologicalOrder FindTopologicalOrder(const InstructionGraph& graph) {
  const std::size_t count = graph.instructions.size();
  std::vector<int> waiting_for(count);
  std::vector<std::size_t> first(count + 1);  // Of each instruction's successors, in one array.
  for (const Dependency& dependency : graph.dependencies) {
    ++waiting_for[At(dependency.to)];
    ++first[At(dependency.from) + 1];
  }
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<int> successors(graph.dependencies.size());
  std::vector<std::size_t> next(first.begin(), first.end() - 1);
  for (const Dependency& dependency : graph.dependencies) {
    successors[next[At(dependency.from)]++] = dependency.to;
  }

  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (std::size_t instruction = 0; instruction < count; ++instruction) {
    if (waiting_for[instruction] == 0) ready.push(static_cast<int>(instruction));
  }
  TopologicalOrder result;
  result.order.reserve(count);
  while (!ready.empty()) {
    const int instruction = ready.top();
    ready.pop();
    result.order.push_back(instruction);
    for (std::size_t i = first[At(instruction)]; i < first[At(instruction) + 1]; ++i) {
      if (--waiting_for[At(successors[i])] == 0) ready.push(successors[i]);
    }
  }
  if (result.order.size() < count) {
    result.order.clear();
    result.cycle = FindCycle(graph, waiting_for);
  }
  return result;
}

InstructionGraph Renumber(InstructionGraph graph, const std::vector<int>& order) {
  std::vector<int> number(order.size());
  std::vector<InstructionNode> instructions;
  instructions.reserve(order.size());
  for (int instruction : order) {
    number[At(instruction)] = static_cast<int>(instructions.size());
    instructions.push_back(graph.instructions[At(instruction)]);
  }
  graph.instructions = std::move(instructions);
  for (Dependency& dependency : graph.dependencies) {
    dependency.from = number[At(dependency.from)];
    dependency.to = number[At(dependency.to)];
  }
  std::sort(graph.dependencies.begin(), graph.dependencies.end(),
            [](const Dependency& left, const Dependency& right) {
              return std::tie(left.from, left.to) < std::tie(right.from, right.to);
            });
  for (std::vector<int>& pp_rank : graph.pp_rank_orders) {
    for (int& instruction : pp_rank) instruction = number[At(instruction)];
  }
  return graph;
}

}  // namespace perseus::schedule
