// Makes the JSON that describes a job in answers.
//
// Only for .cc files that link nlohmann_json.
#pragma once

#include <nlohmann/json.hpp>

#include "perseus/cluster/server/api/endpoints.h"

namespace perseus::server {

// Returns a job in a list: its registration, status, step and saving.
Result<nlohmann::ordered_json> SummarizeJob(const Services& services, const store::JobRecord& job,
                                            Milliseconds now);
// Returns a whole job: also its stragglers, its assignment, and each node with the assignment that
// the node follows.
Result<nlohmann::ordered_json> ViewJob(const Services& services, const store::JobRecord& job,
                                       Milliseconds now);

// Returns what a node reports about a job, without the names of the node and its ranks.
nlohmann::ordered_json NodeJson(const store::NodeRecord& node, Milliseconds now);

nlohmann::ordered_json StragglerJson(const store::StragglerRecord& straggler, Milliseconds now);

nlohmann::ordered_json PastStragglerJson(const store::PastStragglerRecord& straggler);

// Fails with 409 for a job that has ended.
Answer<void> RequireRunning(const store::JobRecord& job);

}  // namespace perseus::server
