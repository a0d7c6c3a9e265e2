// Which instructions an iteration waits for.
#pragma once

#include <vector>

#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::report {

// Per instruction, whether it lies on a critical path: were it a nanosecond longer, the iteration
// would be, too. Exact, by the durations of the evaluation: latest start equals earliest start
// (Kelley & Walker 1959). At least one path from the iteration's start to its end is critical.
std::vector<bool> CriticalInstructions(const schedule::InstructionGraph& graph,
                                       const plan::Evaluation& evaluation);

}  // namespace perseus::report
