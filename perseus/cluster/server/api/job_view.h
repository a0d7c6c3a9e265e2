// Makes the JSON that describes a job in answers.
//
// Only for .cc files that link nlohmann_json.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

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

// Returns how slow the pipeline is according to detection. Empty: it is no detected straggler.
std::optional<double> DetectedSlowdown(const std::vector<store::StragglerRecord>& stragglers,
                                       int dp_rank, Milliseconds now);

// `all` has the stragglers of the job. If one of them is a measurement of the same pipeline, the
// answer has it, with a warning if it is far from what a client declared.
nlohmann::ordered_json StragglerJson(const store::StragglerRecord& straggler,
                                     const std::vector<store::StragglerRecord>& all,
                                     Milliseconds now);

nlohmann::ordered_json PastStragglerJson(const store::PastStragglerRecord& straggler);

// Fails with 409 for a job that has ended.
Answer<void> RequireRunning(const store::JobRecord& job);

}  // namespace perseus::server
