// A job as clients see it.
//
// Only for .cc files that link nlohmann_json.
#pragma once

#include <nlohmann/json.hpp>

#include "perseus/cluster/server/endpoints.h"

namespace perseus::server {

// For lists: what it is, what it does and saves.
Result<nlohmann::ordered_json> SummarizeJob(const Services& services, const store::JobRecord& job,
                                            store::Milliseconds now);
// All: also stragglers, the assignment in force, and each node with what it follows.
Result<nlohmann::ordered_json> ViewJob(const Services& services, const store::JobRecord& job,
                                       store::Milliseconds now);

nlohmann::ordered_json StragglerJson(const store::StragglerRecord& straggler,
                                     store::Milliseconds now);

// 409 for a job that has ended.
Answer<void> RequireRunning(const store::JobRecord& job);

}  // namespace perseus::server
