#include "perseus/cluster/server/api/job_view.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "perseus/base/time_text.h"
#include "perseus/base/wording.h"
#include "perseus/cluster/job_planning/job_spec.h"
#include "perseus/cluster/server/api/endpoints.h"
#include "perseus/cluster/server/api/fleet_status.h"
#include "perseus/cluster/server/api/job_health.h"
#include "perseus/cluster/telemetry/notice_check.h"

namespace perseus::server {
namespace {

using nlohmann::ordered_json;

constexpr Milliseconds kOldStraggler = 3'600'000;
// A measured slowdown below this part of the declared one is far from it.
constexpr double kFarBelow = 0.75;

Result<std::optional<store::PlannedAssignment>> AssignmentOf(const Services& services,
                                                             const store::JobRecord& job) {
  PERSEUS_ASSIGN_OR_RETURN(auto record,
                           services.store.FindNewestAssignment(job.id, job.assignment_version));
  if (!record) return std::optional<store::PlannedAssignment>();
  return std::optional(std::move(record->assignment));
}

ordered_json AssignmentJson(const store::JobRecord& job,
                            const store::PlannedAssignment& assignment) {
  ordered_json json{{"version", job.assignment_version}};
  json.update(JsonOf(assignment));
  json.erase("upcoming");
  json.erase("tail_s");
  return json;
}

ordered_json TrainingJson(const store::JobRecord& job, const JobHealth& health) {
  ordered_json json{{"state", Name(health.training)},
                    {"ranks", health.ranks.ranks},
                    {"running", health.ranks.running},
                    {"without_lease", health.ranks.without_lease}};
  if (health.last_step_s_ago) json["last_step_s_ago"] = *health.last_step_s_ago;
  if (health.training == Training::kEnded) json["ended"] = TimeText(job.last_step_at);
  return json;
}

ordered_json Summary(const store::JobRecord& job, const job_planning::JobSpec& spec,
                     const std::optional<store::PlannedAssignment>& assignment,
                     const JobHealth& health, const std::optional<store::GuardRecord>& guard) {
  ordered_json json{{"id", job.id},
                    {"key", job.key},
                    {"status", job.ended != 0 ? "ended" : store::Name(job.status)},
                    {"created", TimeText(job.created)}};
  if (job.ended != 0) json["ended"] = TimeText(job.ended);
  if (!job.owner.empty()) json["owner"] = job.owner;
  if (!job.problem.empty()) json["problem"] = job.problem;
  json["pipelines"] = spec.planned.pipelines;
  json["pp_ranks"] = spec.planned.schedule.pp_ranks.size();
  json["tensor_parallel"] = spec.planned.model.gpus_per_stage;
  json["schedule"] = spec.planned.schedule.name;
  json["microbatches"] = spec.planned.schedule.microbatches;
  if (!spec.gpu_name.empty()) json["gpu"] = spec.gpu_name;
  json["target"] =
      job.target.empty() ? job_planning::TargetJson(spec.target) : ordered_json::parse(job.target);
  json["detect_stragglers"] = spec.detects_stragglers;
  json["profile_version"] = job.profile_version;
  json["planning"] = job.planned_generation < job.generation ? "due" : "done";
  json["last_step"] = job.last_step;
  if (job.ended == 0) {
    json["training"] = TrainingJson(job, health);
    for (const Need& need : NeedsOf(job, health, guard)) json["needs"].push_back(need.text);
  }
  if (!health.lost_nodes.empty()) json["lost_nodes"] = health.lost_nodes.size();
  const bool is_fresh = job.ended != 0 || health.IsFresh();
  if (is_fresh && !job.summary.empty()) json["measured"] = ordered_json::parse(job.summary);
  if (assignment && !assignment->pipelines.empty() && health.FollowsPlan()) {
    double energy_j = 0;
    for (const store::PlannedAssignment::Share& share : assignment->pipelines)
      energy_j += share.energy_j;
    const double baseline_j =
        assignment->baseline_energy_j * static_cast<double>(assignment->pipelines.size());
    json["assignment_version"] = job.assignment_version;
    json["saving_percent"] = 100 * (1 - energy_j / baseline_j);
    json["slowdown_percent"] = 100 * (assignment->time_s / assignment->baseline_time_s - 1);
  }
  return json;
}

ordered_json GuardJson(const store::GuardRecord& guard) {
  ordered_json json{{"state", store::Name(guard.state)},
                    {"since", TimeText(guard.since)},
                    {"with_plan", guard.with_plan}};
  if (guard.without_plan > 0) json["without_plan"] = guard.without_plan;
  if (!guard.why.empty()) json["why"] = guard.why;
  return json;
}

}  // namespace

Result<ordered_json> SummarizeJob(const Services& services, const store::JobRecord& job,
                                  Milliseconds now) {
  PERSEUS_ASSIGN_OR_RETURN(auto spec, job_planning::StoredJobSpec(job.body));
  PERSEUS_ASSIGN_OR_RETURN(auto assignment, AssignmentOf(services, job));
  PERSEUS_ASSIGN_OR_RETURN(const auto nodes, services.store.ListNodesOfJob(job.id));
  PERSEUS_ASSIGN_OR_RETURN(const auto guard, services.store.FindGuard(job));
  return Summary(job, spec, assignment, HealthOf(job, nodes, now), guard);
}

Result<ordered_json> ViewJob(const Services& services, const store::JobRecord& job,
                             Milliseconds now) {
  PERSEUS_ASSIGN_OR_RETURN(auto spec, job_planning::StoredJobSpec(job.body));
  PERSEUS_ASSIGN_OR_RETURN(auto assignment, AssignmentOf(services, job));
  PERSEUS_ASSIGN_OR_RETURN(const auto stragglers, services.store.ListStragglers(job.id));
  PERSEUS_ASSIGN_OR_RETURN(auto nodes, services.store.ListNodesOfJob(job.id));
  for (store::NodeRecord& node : nodes) services.reports.AddLastReport(node);
  PERSEUS_ASSIGN_OR_RETURN(const auto guard, services.store.FindGuard(job));
  ordered_json json = Summary(job, spec, assignment, HealthOf(job, nodes, now), guard);
  if (assignment) json["assignment"] = AssignmentJson(job, *assignment);
  json["most_harm_percent"] = spec.most_harm_percent;
  if (guard && job.ended == 0) json["guard"] = GuardJson(*guard);
  auto straggler_list = ordered_json::array();
  for (const store::StragglerRecord& straggler : stragglers) {
    straggler_list.push_back(StragglerJson(straggler, stragglers, now));
  }
  json["stragglers"] = std::move(straggler_list);
  auto node_list = ordered_json::array();
  for (const store::NodeRecord& node : nodes) {
    const std::int64_t from_step = assignment ? assignment->from_step : 0;
    ordered_json row{{"node", node.node}, {"state", NodeState(node, job, from_step, now)}};
    row.update(NodeJson(node, now));
    row["ranks"] = ordered_json::parse(node.ranks);
    node_list.push_back(std::move(row));
  }
  json["nodes"] = std::move(node_list);
  return json;
}

ordered_json NodeJson(const store::NodeRecord& node, Milliseconds now) {
  const NodeHealth health = HealthOf(node, now);
  return {{"acknowledged", node.acknowledged},
          {"following", node.following},
          {"since_step", node.since_step},
          {"running", health.running},
          {"without_lease", health.without_lease},
          {"last_step_s_ago", SecondsSince(node.ran, now)},
          {"seen_s_ago", SecondsSince(node.seen, now)}};
}

std::optional<double> DetectedSlowdown(const std::vector<store::StragglerRecord>& stragglers,
                                       int dp_rank, Milliseconds now) {
  const auto found = std::ranges::find_if(stragglers, [&](const store::StragglerRecord& one) {
    return one.dp_rank == dp_rank && one.source == store::StragglerSource::kDetected &&
           StragglerState(one, now) == "in force";
  });
  return found == stragglers.end() ? std::nullopt : std::optional(found->slowdown);
}

ordered_json StragglerJson(const store::StragglerRecord& straggler,
                           const std::vector<store::StragglerRecord>& all, Milliseconds now) {
  const std::string_view state = StragglerState(straggler, now);
  ordered_json json{{"dp_rank", straggler.dp_rank},
                    {"source", store::Name(straggler.source)},
                    {"slowdown", straggler.slowdown},
                    {"state", state},
                    {"starts", TimeText(straggler.starts)}};
  if (straggler.expires != 0) json["expires"] = TimeText(straggler.expires);
  if (straggler.measured > 0) json["measured"] = straggler.measured;
  if (state == "suspended") {
    json["reinstated"] = fmt::format(
        "when dp_rank {} takes at least {} longer than planned for {} steps in a row, or when "
        "another slowdown is reported",
        straggler.dp_rank, FormatPercent(telemetry::LeastMeasured(straggler.slowdown) - 1),
        telemetry::NoticeCheck::kToReinstate);
  }
  const bool has_begun = straggler.starts <= now;
  if (straggler.expires == 0 && has_begun && now - straggler.starts > kOldStraggler) {
    json["warning"] = fmt::format(
        "reported {:.0f} hours ago, and never expires (when the pipeline is fast again: perseus "
        "job straggler JOB {} --over)",
        SecondsSince(straggler.starts, now) / 3600, straggler.dp_rank);
  }
  if (state != "in force" || straggler.source == store::StragglerSource::kDetected) return json;
  const auto detected = DetectedSlowdown(all, straggler.dp_rank, now);
  if (!detected) return json;
  json["measured"] = *detected;
  const double ratio = (*detected - 1) / (straggler.slowdown - 1);
  if (ratio < kFarBelow || ratio > 1 / kFarBelow) {
    json["warning"] = fmt::format(
        "the {} is far from the measurement, and the larger one counts (correct it, or withdraw "
        "it)",
        store::Name(straggler.source));
  }
  return json;
}

ordered_json PastStragglerJson(const store::PastStragglerRecord& straggler) {
  ordered_json json{{"dp_rank", straggler.dp_rank},       {"source", store::Name(straggler.source)},
                    {"slowdown", straggler.slowdown},     {"starts", TimeText(straggler.starts)},
                    {"ended", TimeText(straggler.ended)}, {"why", store::Name(straggler.why)}};
  if (straggler.measured > 0) json["measured"] = straggler.measured;
  return json;
}

Answer<void> RequireRunning(const store::JobRecord& job) {
  if (job.ended == 0) return {};
  return Refuse(409, "The job has ended",
                fmt::format("job {} ended at {}", job.key, TimeText(job.ended)),
                "register it again: perseus job register");
}

}  // namespace perseus::server
