// The current state of the fleet, for metrics. It is read from the store, so each replica returns
// the same values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/store/store.h"

namespace perseus::server {

// Returns how far a node follows the newest assignment of a job: "following", "pending", "late",
// "ahead" or "lost" (no report for 15 s).
std::string_view NodeState(const store::NodeRecord& node, const store::JobRecord& job,
                           std::int64_t from_step, Milliseconds now);
// Returns "announced", "in force", "suspended" or "over".
std::string_view StragglerState(const store::StragglerRecord& straggler, Milliseconds now);

struct JobStatus {
  std::string key;
  // By the names of metrics (server_metrics.cc). Unknown values are missing.
  std::map<std::string, double> values = {};
};

struct FleetStatus {
  std::map<std::string, int> nodes;  // By state.
  // By source and state.
  std::map<std::pair<store::StragglerSource, std::string>, int> stragglers;
  int planning_backlog = 0;     // Jobs that wait for a planning.
  double planning_wait_s = 0;   // The longest wait of these jobs.
  std::vector<JobStatus> jobs;  // Running.
};

// Reads up to kMaxFleetJobs running jobs, in order of creation.
inline constexpr int kMaxFleetJobs = 1'000;
Result<FleetStatus> ReadFleetStatus(store::Store& store, Milliseconds now);

}  // namespace perseus::server
