// Kahn's algorithm (1962) over the dependencies of an operation graph.
#pragma once

#include <vector>

#include "perseus/planning/schedule/operation_graph.h"

namespace perseus::schedule {

struct TopologicalOrder {
  // Every operation, each after all that it waits for; among those that are ready the lowest number
  // first, so that numbers already in order stay as they are. Empty if there is a cycle.
  std::vector<int> order;
  // If there is one: operations that wait for each other, each after the one it waits for.
  std::vector<int> cycle;
};

TopologicalOrder FindTopologicalOrder(const OperationGraph& graph);

// The same graph with operation order[i] as number i, and dependencies by (from, to).
OperationGraph Renumber(OperationGraph graph, const std::vector<int>& order);

}  // namespace perseus::schedule
