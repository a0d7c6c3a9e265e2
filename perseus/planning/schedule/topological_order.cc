#include "perseus/planning/schedule/topological_order.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>

namespace perseus::schedule {
namespace {

std::size_t Index(int operation) { return static_cast<std::size_t>(operation); }

// Whatever waits after Kahn's algorithm has ended waits for another that waits; so going back from
// any of them must come to one that was seen before.
std::vector<int> FindCycle(const OperationGraph& graph, const std::vector<int>& waiting_for) {
  std::vector<int> before(graph.operations.size(), -1);
  int current = -1;
  for (const Dependency& dependency : graph.dependencies) {
    if (waiting_for[Index(dependency.from)] == 0) continue;
    before[Index(dependency.to)] = dependency.from;
    current = dependency.to;
  }
  std::vector<bool> seen(graph.operations.size());
  while (!seen[Index(current)]) {
    seen[Index(current)] = true;
    current = before[Index(current)];
  }
  std::vector<int> cycle;
  const int start = current;
  do {
    cycle.push_back(current);
    current = before[Index(current)];
  } while (current != start);
  std::reverse(cycle.begin(), cycle.end());
  return cycle;
}

}  // namespace

TopologicalOrder FindTopologicalOrder(const OperationGraph& graph) {
  const std::size_t count = graph.operations.size();
  std::vector<int> waiting_for(count);
  std::vector<std::size_t> first(count + 1);  // Of each operation's successors, in one array.
  for (const Dependency& dependency : graph.dependencies) {
    ++waiting_for[Index(dependency.to)];
    ++first[Index(dependency.from) + 1];
  }
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<int> successors(graph.dependencies.size());
  std::vector<std::size_t> next(first.begin(), first.end() - 1);
  for (const Dependency& dependency : graph.dependencies) {
    successors[next[Index(dependency.from)]++] = dependency.to;
  }

  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (std::size_t operation = 0; operation < count; ++operation) {
    if (waiting_for[operation] == 0) ready.push(static_cast<int>(operation));
  }
  TopologicalOrder result;
  result.order.reserve(count);
  while (!ready.empty()) {
    const int operation = ready.top();
    ready.pop();
    result.order.push_back(operation);
    for (std::size_t i = first[Index(operation)]; i < first[Index(operation) + 1]; ++i) {
      if (--waiting_for[Index(successors[i])] == 0) ready.push(successors[i]);
    }
  }
  if (result.order.size() < count) {
    result.order.clear();
    result.cycle = FindCycle(graph, waiting_for);
  }
  return result;
}

OperationGraph Renumber(OperationGraph graph, const std::vector<int>& order) {
  std::vector<int> number(order.size());
  std::vector<Operation> operations;
  operations.reserve(order.size());
  for (int operation : order) {
    number[Index(operation)] = static_cast<int>(operations.size());
    operations.push_back(graph.operations[Index(operation)]);
  }
  graph.operations = std::move(operations);
  for (Dependency& dependency : graph.dependencies) {
    dependency.from = number[Index(dependency.from)];
    dependency.to = number[Index(dependency.to)];
  }
  std::sort(graph.dependencies.begin(), graph.dependencies.end(),
            [](const Dependency& left, const Dependency& right) {
              return std::tie(left.from, left.to) < std::tie(right.from, right.to);
            });
  for (std::vector<int>& rank : graph.rank_orders) {
    for (int& operation : rank) operation = number[Index(operation)];
  }
  return graph;
}

}  // namespace perseus::schedule
