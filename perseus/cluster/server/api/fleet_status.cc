#include "perseus/cluster/server/api/fleet_status.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/json_text.h"
#include "perseus/cluster/server/api/endpoints.h"
#include "perseus/cluster/server/api/job_health.h"

namespace perseus::server {
namespace {

// Adds how the training does. Without a fresh step or with ranks that cannot follow the plan, the
// job has no saving.
void AddHealth(const JobHealth& health, JobStatus& status) {
  auto& values = status.values;
  if (health.last_step_s_ago) {
    values["perseus_job_last_step_age_seconds"] = *health.last_step_s_ago;
  }
  values["perseus_job_ranks"] = health.ranks.ranks;
  values["perseus_job_ranks_running"] = health.ranks.running;
  values["perseus_job_ranks_without_lease"] = health.ranks.without_lease;
  values["perseus_job_stopped"] = health.training == Training::kStopped ? 1 : 0;
  const auto measured = values.find("perseus_job_step_measured_joules");
  const auto baseline = values.find("perseus_job_step_baseline_joules");
  if (!health.FollowsPlan() || measured == values.end() || baseline == values.end()) return;
  values["perseus_job_saving_ratio"] = 1 - measured->second / baseline->second;
}

// Adds the measurements of telemetry and their comparison with the active plan. Both are in the
// summary of the job.
void AddPromise(const store::JobRecord& job, JobStatus& status) {
  const auto add = [&status](const char* metric, const nlohmann::json& json, const char* key) {
    const auto found = json.find(key);
    if (found != json.end() && found->is_number()) status.values[metric] = *found;
  };
  const auto summary = ParseJson(job.summary);
  if (!summary.is_object()) return;
  add("perseus_job_step_measured_seconds", summary, "step_s");
  const auto promise = summary.find("promise");
  if (promise == summary.end() || promise->value("version", 0) != job.assignment_version) return;
  add("perseus_job_step_measured_seconds", *promise, "measured_s");
  add("perseus_job_step_measured_joules", *promise, "measured_j");
  add("perseus_job_limited_ranks", *promise, "limited_ranks");
  if (promise->contains("problem")) status.values["perseus_job_promise_broken"] = 1;
}

Result<std::int64_t> AddAssignment(store::Store& store, const store::JobRecord& job,
                                   Milliseconds now, JobStatus& status) {
  PERSEUS_ASSIGN_OR_RETURN(const auto record,
                           store.FindNewestAssignment(job.id, job.assignment_version));
  if (!record) return 0;
  const store::PlannedAssignment& assignment = record->assignment;
  status.values["perseus_job_plan_age_seconds"] = SecondsSince(record->created, now);
  if (assignment.pipelines.empty()) return assignment.from_step;
  status.values["perseus_job_step_promised_seconds"] = assignment.time_s;
  double& promised_j = status.values["perseus_job_step_promised_joules"];
  for (const auto& share : assignment.pipelines) promised_j += share.energy_j;
  status.values["perseus_job_step_baseline_joules"] =
      assignment.baseline_energy_j * static_cast<double>(assignment.pipelines.size());
  return assignment.from_step;
}

Result<void> AddJob(store::Store& store, const store::JobRecord& job, Milliseconds now,
                    FleetStatus& fleet) {
  JobStatus status{.key = job.key,
                   .values = {{"perseus_job_limited_ranks", 0},
                              {"perseus_job_promise_broken", 0},
                              {"perseus_job_plan_taken_back", 0}}};
  PERSEUS_ASSIGN_OR_RETURN(const auto from_step, AddAssignment(store, job, now, status));
  PERSEUS_ASSIGN_OR_RETURN(const auto nodes, store.ListNodesOfJob(job.id));
  const JobHealth health = HealthOf(job, nodes, now);
  if (health.IsFresh()) AddPromise(job, status);
  AddHealth(health, status);
  PERSEUS_ASSIGN_OR_RETURN(const auto guard, store.FindGuard(job));
  if (guard && guard->state == store::GuardState::kWithdrawn)
    status.values["perseus_job_plan_taken_back"] = 1;
  // At the default clocks, no plan is measured, but the promise of the plan counts as broken.
  if (guard && guard->state != store::GuardState::kCleared)
    status.values["perseus_job_promise_broken"] = 1;
  status.needs = NeedsOf(job, health, guard);
  status.values["perseus_job_needs_person"] = status.needs.empty() ? 0 : 1;
  fleet.jobs.push_back(std::move(status));
  for (const store::NodeRecord& node : nodes) {
    ++fleet.nodes[std::string(NodeState(node, job, from_step, now))];
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto stragglers, store.ListStragglers(job.id));
  for (const store::StragglerRecord& straggler : stragglers) {
    ++fleet.stragglers[{straggler.source, std::string(StragglerState(straggler, now))}];
  }
  return {};
}

}  // namespace

std::string_view NodeState(const store::NodeRecord& node, const store::JobRecord& job,
                           std::int64_t from_step, Milliseconds now) {
  const NodeHealth health = HealthOf(node, now);
  if (health.is_lost) return "lost";
  if (health.running < health.ranks) return "stopped";
  if (node.following == job.assignment_version) {
    return health.without_lease > 0 ? "unleased" : "following";
  }
  if (node.following > job.assignment_version) return "ahead";
  return job.last_step >= 0 && job.last_step > from_step ? "late" : "pending";
}

std::string_view StragglerState(const store::StragglerRecord& straggler, Milliseconds now) {
  if (straggler.expires != 0 && straggler.expires <= now) return "over";
  if (straggler.starts > now) return "announced";
  return straggler.suspended != 0 ? "suspended" : "in force";
}

Result<FleetStatus> ReadFleetStatus(store::Store& store, Milliseconds now) {
  FleetStatus fleet;
  PERSEUS_ASSIGN_OR_RETURN(const auto jobs,
                           store.ListJobs(store::Store::Which::kRunning, "", kMaxFleetJobs));
  for (const store::JobRecord& job : jobs) {
    PERSEUS_RETURN_IF_ERROR(AddJob(store, job, now, fleet));
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto backlog, store.ReadPlanningBacklog(now));
  fleet.planning_backlog = static_cast<int>(backlog.jobs);
  if (backlog.jobs > 0) fleet.planning_wait_s = SecondsSince(backlog.oldest_due, now);
  return fleet;
}

}  // namespace perseus::server
