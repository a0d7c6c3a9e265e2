// Which operations an iteration waits for.
#pragma once

#include <vector>

#include "perseus/pipeline/operation_graph.h"
#include "perseus/plan/evaluation.h"

namespace perseus {

// Per operation, whether it lies on a critical path: were it a nanosecond longer, the iteration
// would be, too. Exact, by the durations of the evaluation: latest start equals earliest start
// (Kelley & Walker 1959). At least one path from the iteration's start to its end is critical.
std::vector<bool> CriticalOperations(const OperationGraph& graph, const Evaluation& evaluation);

}  // namespace perseus
