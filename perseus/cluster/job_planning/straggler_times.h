// Computes how long an iteration of each pipeline may take while other pipelines are slow
// (docs/server.md, "Stragglers").
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "perseus/cluster/store/store.h"

namespace perseus::job_planning {

// Returns the largest slowdown of each pipeline at `now`, by dp_rank. Ignores slowdowns of 1, and
// pipelines that the job does not have. Also ignores stragglers that have not begun, have ended, or
// are suspended because measurements contradict them.
std::map<int, double> SlowdownsAt(std::span<const store::StragglerRecord> stragglers, int pipelines,
                                  Milliseconds now);

// Returns the largest of these slowdowns, at least 1.
double SlowestOf(const std::map<int, double>& slowdowns);

// Returns a factor for each pipeline: how many times longer its iteration may take than in the plan
// of the target. The factor is T'/(s_p T), rounded down to half a percent. T is the iteration time
// without stragglers, T' is the iteration time of the slowest pipeline, and s_p is the slowdown of
// pipeline p. The slowest pipeline has the factor 1. Without stragglers, all pipelines have the
// factor 1.
std::vector<double> FactorsOf(const std::map<int, double>& slowdowns, int pipelines);

// Returns when the next straggler begins or ends after `now`, or nullopt if none does.
std::optional<Milliseconds> NextChange(std::span<const store::StragglerRecord> stragglers,
                                       Milliseconds now);

}  // namespace perseus::job_planning
