#include "perseus/cluster/server/api/fleet_status.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/json_text.h"
#include "perseus/cluster/server/api/endpoints.h"
#include "perseus/cluster/telemetry/node_ranks.h"

namespace perseus::server {
namespace {

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
  AddPromise(job, status);
  PERSEUS_ASSIGN_OR_RETURN(const auto guard, store.FindGuard(job));
  if (guard && guard->state == store::GuardState::kWithdrawn)
    status.values["perseus_job_plan_taken_back"] = 1;
  // At the default clocks, no plan is measured, but the promise of the plan counts as broken.
  if (guard && guard->state != store::GuardState::kCleared)
    status.values["perseus_job_promise_broken"] = 1;
  fleet.jobs.push_back(std::move(status));
  PERSEUS_ASSIGN_OR_RETURN(const auto nodes, store.ListNodesOfJob(job.id));
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
  if (now - node.seen > telemetry::kNodeIsSilentAfter) return "lost";
  if (node.following == job.assignment_version) return "following";
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
