// What the fleet does now, for metrics: read from the store, so each replica gives the same values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/job_planning/planned_assignment.h"
#include "perseus/cluster/store/store.h"

namespace perseus::server {

// Where a node is with the newest assignment of a job: "following", "pending", "late", "ahead" or
// "lost" (no report for 15 s).
std::string_view NodeState(const store::NodeRecord& node, const store::JobRecord& job,
                           std::int64_t from_step, store::Milliseconds now);
// "announced", "in force", "suspended" or "over".
std::string_view StragglerState(const store::StragglerRecord& straggler, store::Milliseconds now);

struct JobStatus {
  std::string key;
  std::optional<double> plan_age_s = {};  // Since the assignment in force was made.
  // Of a step of all pipelines. Nothing if unknown.
  std::optional<double> promised_s = {};
  std::optional<double> measured_s = {};
  std::optional<double> promised_j = {};
  std::optional<double> measured_j = {};
  std::optional<double> baseline_j = {};  // Planned, at maximum frequency.
  int limited_ranks = 0;                  // Whose clock heat or another program limits.
  bool has_problem = false;               // Slower or hungrier than promised by more than 1 %.
  bool is_taken_back = false;             // The plan cost throughput (telemetry/plan_guard.h).
};

struct FleetStatus {
  std::map<std::string, int> nodes;                               // By state.
  std::map<std::pair<std::string, std::string>, int> stragglers;  // By source and state.
  int planning_backlog = 0;                                       // Jobs that wait for a planning.
  double planning_wait_s = 0;                                     // Of the one that waits longest.
  std::vector<JobStatus> jobs;                                    // Running.
};

// Reads up to kMaxFleetJobs running jobs, in order of creation.
inline constexpr int kMaxFleetJobs = 1'000;
Result<FleetStatus> ReadFleetStatus(store::Store& store, store::Milliseconds now);

}  // namespace perseus::server
