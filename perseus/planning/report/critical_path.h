// Finds the instructions that determine the iteration time.
#pragma once

#include <vector>

#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::report {

// [instruction] whether it is on a critical path: if it took a nanosecond longer, the iteration
// would take longer, too. This is exact for the durations of the evaluation: an instruction is
// critical if its latest start is its actual start (Kelley & Walker 1959). At least one path from
// the start to the end of the iteration is critical. O(instructions + dependencies).
std::vector<bool> CriticalInstructions(const schedule::InstructionGraph& graph,
                                       const plan::Evaluation& evaluation);

}  // namespace perseus::report
