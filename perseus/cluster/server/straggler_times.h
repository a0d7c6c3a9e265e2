// How long each pipeline may take when some are slow (docs/server.md, "Stragglers").
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "perseus/cluster/store/store.h"

namespace perseus::server {

// What holds at `now`: the largest slowdown that anybody says of each pipeline. Those of 1, those
// of pipelines that the job lacks, and what has not begun or is over, do not count.
std::map<int, double> SlowdownsAt(std::span<const store::StragglerRecord> stragglers, int pipelines,
                                  store::Milliseconds now);

// For each pipeline, T'/(s_p T) rounded down to half a percent: the factor by which its iteration
// may be longer than the target's plan. 1 for the slowest, and for all when there is no straggler.
std::vector<double> FactorsOf(const std::map<int, double>& slowdowns, int pipelines);

// When the next of them begins or ends after `now`; nothing if none does.
std::optional<store::Milliseconds> NextChange(std::span<const store::StragglerRecord> stragglers,
                                              store::Milliseconds now);

}  // namespace perseus::server
