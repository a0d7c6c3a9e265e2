// Reads the current state of the fleet (all jobs and nodes), for metrics. The state is in the
// store, so each replica returns the same values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/server/api/job_health.h"
#include "perseus/cluster/store/store.h"

namespace perseus::server {

// Returns how far a node follows the newest assignment of a job: "following", "unleased" (ranks
// without a lease of their GPU follow it without clocks), "pending", "late", "ahead", "stopped"
// (some of its ranks do not run) or "lost" (no report for 15 s).
std::string_view NodeState(const store::NodeRecord& node, const store::JobRecord& job,
                           std::int64_t from_step, Milliseconds now);
// Returns "announced", "in force", "suspended" or "over".
std::string_view StragglerState(const store::StragglerRecord& straggler, Milliseconds now);

struct JobStatus {
  std::string key;
  // The values by the names of their metrics (server_metrics.cc). Unknown values are missing.
  std::map<std::string, double> values = {};
  std::vector<Need> needs = {};  // What needs a person.
};

struct FleetStatus {
  std::map<std::string, int> nodes;  // The number of nodes in each state.
  // The number of stragglers of each source and state.
  std::map<std::pair<store::StragglerSource, std::string>, int> stragglers;
  int planning_backlog = 0;     // Jobs that wait for a planning.
  double planning_wait_s = 0;   // The longest time that one of these jobs has waited.
  std::vector<JobStatus> jobs;  // The running jobs.
};

// Reads up to kMaxFleetJobs running jobs, in order of creation.
inline constexpr int kMaxFleetJobs = 1'000;
Result<FleetStatus> ReadFleetStatus(store::Store& store, Milliseconds now);

}  // namespace perseus::server
