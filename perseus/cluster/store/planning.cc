// Stores which jobs need a planning, which worker has claimed each of these jobs, and the results.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "perseus/base/json_text.h"
#include "perseus/cluster/store/audit.h"
#include "perseus/cluster/store/statements.h"
#include "perseus/cluster/store/store.h"

namespace perseus::store {
namespace {

// The `due` of a claimed task, unless planning is requested again in the meantime.
constexpr Milliseconds kNever = Milliseconds::Max();

// When a worker may claim the task: when it is due, or when the claim of another worker expires.
constexpr std::string_view kClaimableAt = "CASE WHEN worker = '' THEN due ELSE until END";

constexpr std::int64_t kMaxAssignments = 50;

// No job reaches this version. The number is far below the largest integer that is exact in JSON.
constexpr std::int64_t kMaxAssignmentVersion = 1'000'000'000'000;

Result<void> PutFrontier(Transaction& transaction, std::string_view job,
                         std::int64_t profile_version, std::string_view frontier) {
  return RunAll(transaction,
                {{"INSERT INTO frontiers (job, profile_version, body) VALUES ($1, $2, $3) "
                  "ON CONFLICT (job) DO UPDATE SET profile_version = excluded.profile_version, "
                  "body = excluded.body",
                  {job, profile_version, frontier}}});
}

Result<void> AddAssignment(Transaction& transaction, std::string_view job, std::int64_t version,
                           std::string_view body, Milliseconds now) {
  PERSEUS_RETURN_IF_ERROR(RunAll(
      transaction,
      {{"INSERT INTO assignments (job, version, body, created) VALUES ($1, $2, $3, $4)",
        {job, version, body, now}},
       {"UPDATE jobs SET assignment_version = $2 WHERE id = $1", {job, version}},
       {"DELETE FROM assignments WHERE job = $1 AND version <= (SELECT version FROM assignments "
        "WHERE job = $1 ORDER BY version DESC LIMIT 1 OFFSET $2)",
        {job, kMaxAssignments}}}));
  return transaction.Notify({.kind = Notice::Kind::kAssignment, .name = std::string(job)});
}

// Makes the record for the audit trail.
AuditRecord AuditOfAssignment(const std::string& id, const LockedJob& job, std::int64_t version,
                              const std::string& body, std::string reason, Milliseconds now) {
  const std::int64_t old = job.assignment_version;
  return {.at = now,
          .action = "job.assignment",
          .job = id,
          .key = job.key,
          .subject = fmt::format("version {}", version),
          .by = {.reason = std::move(reason)},
          .before = old == 0 ? "" : fmt::format(R"({{"version":{}}})", old),
          .after = BriefJson(body)};
}

// Ends the task, or keeps it unclaimed if planning is due again.
Result<void> Finish(Transaction& transaction, std::string_view job, Milliseconds due) {
  if (due == kNever) {
    return RunAll(transaction, {{"DELETE FROM planning WHERE job = $1", {job}}});
  }
  PERSEUS_RETURN_IF_ERROR(transaction.Run(
      "UPDATE planning SET due = $2, worker = '', until = 0 WHERE job = $1", {job, due}));
  return transaction.Notify({.kind = Notice::Kind::kPlanning});
}

}  // namespace

Result<void> MakePlanningDue(Transaction& transaction, std::string_view job, Milliseconds due) {
  PERSEUS_RETURN_IF_ERROR(transaction.Run(
      "INSERT INTO planning (job, due) VALUES ($1, $2) ON CONFLICT (job) DO UPDATE SET "
      "due = CASE WHEN excluded.due < planning.due THEN excluded.due ELSE planning.due END",
      {job, due}));
  return transaction.Notify({.kind = Notice::Kind::kPlanning});
}

Result<void> MarkChanged(Transaction& transaction, std::string_view job, Milliseconds now) {
  PERSEUS_RETURN_IF_ERROR(
      transaction.Run("UPDATE jobs SET generation = generation + 1 WHERE id = $1", {job}));
  return MakePlanningDue(transaction, job, now);
}

Result<std::optional<PlanningTask>> Store::ClaimPlanning(std::string_view worker, Milliseconds now,
                                                         Milliseconds duration) {
  using Claim = std::optional<PlanningTask>;
  return Write<Claim>(*database_, [&](Transaction& transaction) -> Result<Claim> {
    const Milliseconds until = now + duration;
    PERSEUS_ASSIGN_OR_RETURN(
        Rows claimed,
        transaction.Run(
            fmt::format(
                "UPDATE planning SET worker = $1, until = $2, due = $3 WHERE job = "
                "(SELECT job FROM planning WHERE {0} <= $4 ORDER BY {0} LIMIT 1 {1}) RETURNING job",
                kClaimableAt, database_->dialect().skip_locked),
            {worker, until, kNever, now}));
    if (claimed.empty()) return std::nullopt;
    return PlanningTask{
        .job = claimed.front().TakeText(0), .worker = std::string(worker), .until = until};
  });
}

Result<bool> Store::RenewPlanning(const PlanningTask& task, Milliseconds now,
                                  Milliseconds duration) {
  return Write<bool>(*database_, [&](Transaction& transaction) -> Result<bool> {
    PERSEUS_ASSIGN_OR_RETURN(
        const Rows renewed,
        transaction.Run(
            "UPDATE planning SET until = $3 WHERE job = $1 AND worker = $2 RETURNING job",
            {task.job, task.worker, now + duration}));
    return !renewed.empty();
  });
}

Result<void> Store::ReleasePlanning(const PlanningTask& task, Milliseconds due) {
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_ASSIGN_OR_RETURN(const Rows released,
                             transaction.Run("UPDATE planning SET worker = '', until = 0, due = "
                                             "CASE WHEN due < $3 THEN due ELSE $3 END "
                                             "WHERE job = $1 AND worker = $2 RETURNING job",
                                             {task.job, task.worker, due}));
    if (released.empty()) return {};
    return transaction.Notify({.kind = Notice::Kind::kPlanning});
  });
}

Result<std::optional<Milliseconds>> Store::NextPlanningTime() {
  return ReadOne(*database_,
                 fmt::format("SELECT {0} FROM planning ORDER BY {0} LIMIT 1", kClaimableAt), {},
                 [](Row& row) { return row.Time(0); });
}

Result<Store::PlanningBacklog> Store::ReadPlanningBacklog(Milliseconds now) {
  PERSEUS_ASSIGN_OR_RETURN(
      auto backlog,
      ReadOne(*database_,
              fmt::format("SELECT COUNT(*), MIN({0}) FROM planning WHERE {0} <= $1", kClaimableAt),
              {now}, [](Row& row) {
                return PlanningBacklog{row.Integer(0), row.Time(1)};
              }));
  return backlog.value();
}

Result<bool> Store::CompletePlanning(const PlanningTask& task, const PlanningOutcome& outcome,
                                     Milliseconds now) {
  return Write<bool>(*database_, [&](Transaction& transaction) -> Result<bool> {
    PERSEUS_ASSIGN_OR_RETURN(const auto job, LockJob(*database_, transaction, task.job));
    if (!job || job->has_ended) return false;
    PERSEUS_ASSIGN_OR_RETURN(
        const Rows claim,
        transaction.Run(fmt::format("SELECT due FROM planning WHERE job = $1 AND worker = $2 {}",
                                    database_->dialect().for_update),
                        {task.job, task.worker}));
    if (claim.empty()) return false;

    const bool is_current = job->generation == outcome.generation;
    // If the generation has changed, the frontier may belong to an older profile. Then another
    // planning is due, which makes another frontier.
    if (outcome.frontier && is_current) {
      PERSEUS_RETURN_IF_ERROR(
          PutFrontier(transaction, task.job, job->profile_version, *outcome.frontier));
    }
    const std::int64_t version = job->assignment_version + 1;
    const std::string body = outcome.assignment ? JsonText(JsonOf(*outcome.assignment)) : "";
    if (outcome.assignment) {
      PERSEUS_RETURN_IF_ERROR(AddAssignment(transaction, task.job, version, body, now));
    }
    // Insert the plans after the assignment, because InsertPlan keeps the plans that the assignment
    // names.
    for (PlanRecord plan : outcome.plans) {
      plan.job = task.job;
      PERSEUS_RETURN_IF_ERROR(InsertPlan(transaction, std::move(plan), now));
    }
    PERSEUS_RETURN_IF_ERROR(transaction.Run(
        "UPDATE jobs SET status = $2, problem = $3, planned_generation = $4 WHERE id = $1",
        {task.job, Name(outcome.status), outcome.problem, outcome.generation}));
    const Milliseconds due = std::min(
        {claim.front().Time(0), is_current ? kNever : now, outcome.again_at.value_or(kNever)});
    PERSEUS_RETURN_IF_ERROR(Finish(transaction, task.job, due));
    if (outcome.assignment) {
      PERSEUS_RETURN_IF_ERROR(AppendAudit(
          transaction,
          AuditOfAssignment(task.job, *job, version, body, outcome.assignment->reason, now)));
    }
    return true;
  });
}

Result<void> Store::RaiseAssignmentVersion(std::string_view job, std::int64_t version,
                                           Milliseconds now) {
  if (version > kMaxAssignmentVersion) {
    return Fail("{} cannot be the version of an assignment (use the version in the assignment)",
                version);
  }
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_ASSIGN_OR_RETURN(const std::optional<LockedJob> locked,
                             LockJob(*database_, transaction, job));
    if (!locked || locked->has_ended || locked->assignment_version >= version) return {};
    PERSEUS_ASSIGN_OR_RETURN(
        Rows newest,
        transaction.Run("SELECT body FROM assignments WHERE job = $1 ORDER BY version DESC LIMIT 1",
                        {job}));
    if (newest.empty()) {
      return RunAll(transaction,
                    {{"UPDATE jobs SET assignment_version = $2 WHERE id = $1", {job, version}}});
    }
    const std::string body = newest.front().TakeText(0);
    PERSEUS_RETURN_IF_ERROR(AddAssignment(transaction, job, version + 1, body, now));
    return AppendAudit(transaction,
                       AuditOfAssignment(std::string(job), *locked, version + 1, body,
                                         fmt::format("a node has version {}", version), now));
  });
}

Result<void> Store::RequestPlanning(std::string_view job, Milliseconds due) {
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_ASSIGN_OR_RETURN(const std::optional<LockedJob> locked,
                             LockJob(*database_, transaction, job));
    if (!locked || locked->has_ended) return {};
    return MakePlanningDue(transaction, job, due);
  });
}

}  // namespace perseus::store
