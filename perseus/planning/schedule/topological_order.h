// Kahn's algorithm (1962) over the dependencies of an instruction graph.
#pragma once

#include <vector>

#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::schedule {

struct TopologicalOrder {
  // All instructions, each after those that it waits for. Of several ready instructions, the one
  // with the lowest number comes first. So a graph that is already in order does not change. Empty
  // if there is a cycle.
  std::vector<int> order;
  // If there is a cycle, its instructions, each after the one that it waits for.
  std::vector<int> cycle;
};

TopologicalOrder FindTopologicalOrder(const InstructionGraph& graph);

// Returns the same graph with instruction order[i] as number i. Sorts the dependencies by
// (from, to).
InstructionGraph Renumber(InstructionGraph graph, const std::vector<int>& order);

}  // namespace perseus::schedule
