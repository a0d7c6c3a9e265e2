// Stores jobs and their profiles.
#include <fmt/core.h>

#include <optional>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/random_id.h"
#include "perseus/cluster/store/audit.h"
#include "perseus/cluster/store/statements.h"
#include "perseus/cluster/store/store.h"

namespace perseus::store {
namespace {

constexpr std::string_view kJobColumns =
    "id, key, body, target, status, problem, created, ended, profile_version, generation, "
    "planned_generation, assignment_version, last_step, last_step_at, summary, owner";

Result<JobRecord> JobOf(Row& row) {
  JobRecord job;
  PERSEUS_RETURN_IF_ERROR(row.Take(job.id, job.key, job.body, job.target, job.status, job.problem,
                                   job.created, job.ended, job.profile_version, job.generation,
                                   job.planned_generation, job.assignment_version, job.last_step,
                                   job.last_step_at, job.summary, job.owner));
  return job;
}

// If a lower step is reported this much later, the job was restarted.
constexpr Milliseconds kRestartAfter = 60'000;

// Returns nullopt if a job with this key existed and ended between the two statements.
Result<std::optional<Store::Created>> TryCreate(Transaction& transaction, const NewJob& job,
                                                Milliseconds now) {
  PERSEUS_ASSIGN_OR_RETURN(
      Rows rows,
      transaction.Run(
          fmt::format("INSERT INTO jobs (id, key, body, target, created, owner) VALUES ($1, $2, "
                      "$3, $4, $5, "
                      "$6) "
                      "ON CONFLICT (key) WHERE ended = 0 DO NOTHING RETURNING {}",
                      kJobColumns),
          {"j-" + RandomHex(kBytesOfId), job.key, job.body, job.target, now, job.owner}));
  const bool is_new = !rows.empty();
  if (!is_new) {
    PERSEUS_ASSIGN_OR_RETURN(
        rows, transaction.Run(
                  fmt::format("SELECT {} FROM jobs WHERE key = $1 AND ended = 0", kJobColumns),
                  {job.key}));
  }
  if (rows.empty()) return std::nullopt;
  PERSEUS_ASSIGN_OR_RETURN(auto record, JobOf(rows.front()));
  return Store::Created{.job = std::move(record), .is_new = is_new};
}

// Checks the limits. Replicas that register at the same time may exceed a limit by a few jobs.
Result<void> CheckQuota(Transaction& transaction, const NewJob& job) {
  if (job.most_jobs == 0 && job.most_jobs_of_owner == 0) return {};
  PERSEUS_ASSIGN_OR_RETURN(
      const Rows rows,
      transaction.Run("SELECT COUNT(*), COALESCE(SUM(CASE WHEN owner = $1 THEN 1 ELSE 0 END), 0) "
                      "FROM jobs WHERE ended = 0",
                      {job.owner}));
  if (job.most_jobs > 0 && rows.front().Integer(0) > job.most_jobs) {
    return FailAs(ErrorKind::kUnreachable,
                  "the server has {} running jobs, which is its limit (end finished jobs, or "
                  "ask an operator for a higher `max_jobs`)",
                  job.most_jobs);
  }
  if (!job.owner.empty() && job.most_jobs_of_owner > 0 &&
      rows.front().Integer(1) > job.most_jobs_of_owner) {
    return FailAs(ErrorKind::kUnreachable,
                  "{} has {} running jobs, which is the limit of an owner (end finished jobs, "
                  "or ask an operator for a higher `max_jobs_of_owner`)",
                  Excerpt(job.owner), job.most_jobs_of_owner);
  }
  return {};
}

// Sets the target. If `only` has a value and the target is another one, returns false.
Result<bool> ChangeTarget(Database& database, std::string_view job,
                          std::optional<std::string_view> only, std::string_view target,
                          Milliseconds now, const Author& by) {
  return Write<bool>(database, [&](Transaction& transaction) -> Result<bool> {
    PERSEUS_ASSIGN_OR_RETURN(const LockedJob locked, LockRunningJob(database, transaction, job));
    PERSEUS_ASSIGN_OR_RETURN(Rows rows,
                             transaction.Run("SELECT target FROM jobs WHERE id = $1", {job}));
    std::string before = rows.empty() ? "" : rows.front().TakeText(0);
    if (only && before != *only) return false;
    PERSEUS_RETURN_IF_ERROR(
        transaction.Run("UPDATE jobs SET target = $2 WHERE id = $1", {job, target}));
    PERSEUS_RETURN_IF_ERROR(transaction.Run("DELETE FROM plan_guards WHERE job = $1", {job}));
    PERSEUS_RETURN_IF_ERROR(MarkChanged(transaction, job, now));
    PERSEUS_RETURN_IF_ERROR(AppendAudit(transaction, {.at = now,
                                                      .action = "job.target",
                                                      .job = std::string(job),
                                                      .key = locked.key,
                                                      .by = by,
                                                      .before = std::move(before),
                                                      .after = std::string(target)}));
    return true;
  });
}

}  // namespace

Result<Store::Created> Store::CreateJob(const NewJob& job, Milliseconds now, const Author& by) {
  return Write<Created>(*database_, [&](Transaction& transaction) -> Result<Created> {
    constexpr int kTries = 3;  // Each failed try needs a job that ends between two statements.
    for (int i = 0; i < kTries; ++i) {
      PERSEUS_ASSIGN_OR_RETURN(std::optional<Created> created, TryCreate(transaction, job, now));
      if (created && created->is_new) {
        PERSEUS_RETURN_IF_ERROR(CheckQuota(transaction, job));
        PERSEUS_RETURN_IF_ERROR(AppendAudit(transaction, {.at = now,
                                                          .action = "job.register",
                                                          .job = created->job.id,
                                                          .key = created->job.key,
                                                          .by = by,
                                                          .after = BriefJson(job.body)}));
      }
      if (created) return std::move(*created);
    }
    return FailAs(ErrorKind::kSystem,
                  "job {} is created and ended too often to read it (try again)", Excerpt(job.key));
  });
}

Result<std::optional<JobRecord>> Store::FindJob(std::string_view id_or_key) {
  return ReadOne(*database_,
                 fmt::format("SELECT {} FROM jobs WHERE id = $1 OR key = $1 ORDER BY "
                             "CASE WHEN id = $1 THEN 0 WHEN ended = 0 THEN 1 ELSE 2 END, "
                             "number DESC LIMIT 1",
                             kJobColumns),
                 {id_or_key}, JobOf);
}

Result<std::vector<JobRecord>> Store::ListJobs(Which which, std::string_view after, int limit) {
  std::int64_t first = 0;
  if (!after.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(const auto number,
                             ReadOne(*database_, "SELECT number FROM jobs WHERE id = $1", {after},
                                     [](Row& row) { return row.Integer(0); }));
    if (!number) {
      return Fail(
          "job {} does not exist, so the list cannot continue after it (list from the first job)",
          Excerpt(after));
    }
    first = *number;
  }
  const std::string_view running = which == Which::kRunning ? "AND ended = 0" : "";
  return ReadAll(*database_,
                 fmt::format("SELECT {} FROM jobs WHERE number > $1 {} ORDER BY number LIMIT $2",
                             kJobColumns, running),
                 {first, AsLimit(limit)}, JobOf);
}

Result<void> Store::EndJob(std::string_view job, Milliseconds now, const Author& by) {
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_ASSIGN_OR_RETURN(const std::optional<LockedJob> locked,
                             LockJob(*database_, transaction, job));
    if (!locked)
      return Fail("job {} does not exist (list the jobs to see their ids)", Excerpt(job));
    if (locked->has_ended) return {};
    PERSEUS_RETURN_IF_ERROR(
        RunAll(transaction, {{"UPDATE jobs SET ended = $2 WHERE id = $1", {job, now}},
                             {"DELETE FROM planning WHERE job = $1", {job}},
                             {"DELETE FROM stragglers WHERE job = $1", {job}}}));
    PERSEUS_ASSIGN_OR_RETURN(
        Rows nodes, transaction.Run("DELETE FROM nodes WHERE job = $1 RETURNING node", {job}));
    for (Row& node : nodes) {
      const Notice notice{.kind = Notice::Kind::kNode, .name = node.TakeText(0)};
      PERSEUS_RETURN_IF_ERROR(transaction.Notify(notice));
    }
    return AppendAudit(transaction, {.at = now,
                                     .action = "job.end",
                                     .job = std::string(job),
                                     .key = locked->key,
                                     .by = by,
                                     .before = R"({"ended":false})",
                                     .after = R"({"ended":true})"});
  });
}

Result<void> Store::SetTarget(std::string_view job, std::string_view target, Milliseconds now,
                              const Author& by) {
  PERSEUS_RETURN_IF_ERROR(ChangeTarget(*database_, job, std::nullopt, target, now, by));
  return {};
}

Result<bool> Store::ReplaceTarget(std::string_view job, std::string_view before,
                                  std::string_view target, Milliseconds now, const Author& by) {
  return ChangeTarget(*database_, job, before, target, now, by);
}

Result<void> Store::RecordSteps(std::vector<StepRecord> steps) {
  // Sort, so that every call locks the jobs in the same order and no two calls can deadlock.
  std::ranges::sort(steps, {}, &StepRecord::job);
  const auto record = [&](Transaction& transaction) -> Result<void> {
    for (const StepRecord& step : steps) {
      // A report after a restart replaces every earlier report, whatever their times, because the
      // clocks of replicas may differ a little.
      const Milliseconds replaces_until = step.counts == StepRecord::Counts::kRestart
                                              ? Milliseconds::Max()
                                              : step.at - kRestartAfter;
      PERSEUS_RETURN_IF_ERROR(
          transaction.Run("UPDATE jobs SET last_step = $2, summary = $3, last_step_at = $4 "
                          "WHERE id = $1 AND ended = 0 AND (last_step < $2 OR last_step_at <= $5)",
                          {step.job, step.step, step.summary, step.at, replaces_until}));
    }
    return {};
  };
  const bool has_restart = std::ranges::any_of(
      steps, [](const StepRecord& step) { return step.counts == StepRecord::Counts::kRestart; });
  return database_->Transact(record, has_restart ? Durability::kOnDisk : Durability::kInMemory);
}

Result<int> Store::Prune(Milliseconds before, int limit) {
  return Write<int>(*database_, [&](Transaction& transaction) -> Result<int> {
    PERSEUS_ASSIGN_OR_RETURN(
        const Rows deleted,
        transaction.Run(
            "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE ended > 0 AND ended < $1 "
            "ORDER BY ended LIMIT $2) RETURNING id",
            {before, AsLimit(limit)}));
    PERSEUS_RETURN_IF_ERROR(transaction.Run("DELETE FROM node_claims WHERE seen < $1", {before}));
    PERSEUS_RETURN_IF_ERROR(
        transaction.Run("DELETE FROM tokens WHERE issued_by <> '' AND expires < $1", {before}));
    const std::string_view shrink = database_->dialect().shrink;
    if (!deleted.empty() && !shrink.empty()) {
      PERSEUS_RETURN_IF_ERROR(transaction.Run(shrink, {}));
    }
    return static_cast<int>(deleted.size());
  });
}

Result<std::int64_t> Store::PutProfile(std::string_view job, std::string_view csv, Milliseconds now,
                                       const Author& by) {
  return Write<std::int64_t>(*database_, [&](Transaction& transaction) -> Result<std::int64_t> {
    PERSEUS_ASSIGN_OR_RETURN(const LockedJob locked, LockRunningJob(*database_, transaction, job));
    PERSEUS_ASSIGN_OR_RETURN(
        const Rows same,
        transaction.Run("SELECT 1 FROM profiles WHERE job = $1 AND csv = $2", {job, csv}));
    if (!same.empty()) return locked.profile_version;
    const std::int64_t version = locked.profile_version + 1;
    PERSEUS_RETURN_IF_ERROR(RunAll(
        transaction, {{"INSERT INTO profiles (job, csv) VALUES ($1, $2) "
                       "ON CONFLICT (job) DO UPDATE SET csv = excluded.csv",
                       {job, csv}},
                      {"UPDATE jobs SET profile_version = $2 WHERE id = $1", {job, version}}}));
    PERSEUS_RETURN_IF_ERROR(MarkChanged(transaction, job, now));
    const auto old = locked.profile_version;
    PERSEUS_RETURN_IF_ERROR(AppendAudit(
        transaction, {.at = now,
                      .action = "job.profile",
                      .job = std::string(job),
                      .key = locked.key,
                      .by = by,
                      .before = old == 0 ? "" : fmt::format(R"({{"version":{}}})", old),
                      .after = fmt::format(R"({{"bytes":{},"sha256":"{}","version":{}}})",
                                           csv.size(), Sha256(csv), version)}));
    return version;
  });
}

Result<std::optional<ProfileRecord>> Store::FindProfile(std::string_view job) {
  return ReadOne(
      *database_,
      "SELECT jobs.profile_version, profiles.csv FROM jobs JOIN profiles ON profiles.job = jobs.id "
      "WHERE jobs.id = $1",
      {job},
      [](Row& row) { return ProfileRecord{.version = row.Integer(0), .csv = row.TakeText(1)}; });
}

}  // namespace perseus::store
