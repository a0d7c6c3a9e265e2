// Kahn's algorithm (1962) over the dependencies of an instruction graph.
#pragma once

#include <vector>

#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::schedule {

struct TopologicalOrder {
  // Every instruction, each after all that it waits for; among those that are ready the lowest
  // number first, so that numbers already in order stay as they are. Empty if there is a cycle.
  std::vector<int> order;
  // If there is one: instructions that wait for each other, each after the one it waits for.
  std::vector<int> cycle;
};

TopologicalOrder FindTopologicalOrder(const InstructionGraph& graph);

// The same graph with instruction order[i] as number i, and dependencies by (from, to).
InstructionGraph Renumber(InstructionGraph graph, const std::vector<int>& order);

}  // namespace perseus::schedule
