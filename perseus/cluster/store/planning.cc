// Which jobs planning is due for, who has taken it on, and what it came to.
#include <fmt/format.h>

#include <limits>

#include "perseus/cluster/store/sql_store.h"

namespace perseus::store {
namespace {

// `due` of a task that a worker has, unless it is wanted again meanwhile.
constexpr Milliseconds kNever = std::numeric_limits<Milliseconds>::max();

// When somebody may take a task on: at once when it is due, or when he who has it is out of time.
constexpr std::string_view kClaimable = "CASE WHEN worker = '' THEN due ELSE until END";

// 1: something changed, and nodes wait for it; 0: the same again, with more care.
constexpr std::string_view kIsAwaited =
    "(SELECT CASE WHEN jobs.planned < jobs.generation THEN 1 ELSE 0 END FROM jobs "
    "WHERE jobs.id = planning.job)";

constexpr std::int64_t kKeptAssignment = 50;

// What a lost database may have come to; far below what JSON's numbers can say.
constexpr std::int64_t kMostAssignment = 1'000'000'000'000;

Result<void> PutFrontier(Transaction& transaction, std::string_view job,
                         std::int64_t profile_version, std::string_view frontier) {
  return RunSteps(transaction,
                  {{"INSERT INTO frontiers (job, profile_version, body) VALUES ($1, $2, $3) "
                    "ON CONFLICT (job) DO UPDATE SET profile_version = excluded.profile_version, "
                    "body = excluded.body",
                    {job, profile_version, frontier}}});
}

Result<void> AddAssignment(Transaction& transaction, std::string_view job, std::int64_t version,
                           std::string_view body, Milliseconds now) {
  Result<void> added = RunSteps(
      transaction,
      {{"INSERT INTO assignments (job, version, body, created) VALUES ($1, $2, $3, $4)",
        {job, version, body, now}},
       {"UPDATE jobs SET assignment_version = $2 WHERE id = $1", {job, version}},
       {"DELETE FROM assignments WHERE job = $1 AND version <= (SELECT version FROM assignments "
        "WHERE job = $1 ORDER BY version DESC LIMIT 1 OFFSET $2)",
        {job, kKeptAssignment}}});
  if (!added) return added;
  return transaction.Notify({.kind = Notice::Kind::kAssignment, .name = std::string(job)});
}

// The task is done; it stays, unclaimed, if planning is due again.
Result<void> Finish(Transaction& transaction, std::string_view job, Milliseconds due) {
  if (due == kNever) {
    return RunSteps(transaction, {{"DELETE FROM planning WHERE job = $1", {job}}});
  }
  PERSEUS_RETURN_IF_ERROR(transaction.Run(
      "UPDATE planning SET due = $2, worker = '', until = 0 WHERE job = $1", {job, due}));
  return transaction.Notify({.kind = Notice::Kind::kPlanning, .name = ""});
}

}  // namespace

Result<void> MakeDue(Transaction& transaction, std::string_view job, Milliseconds due) {
  PERSEUS_RETURN_IF_ERROR(transaction.Run(
      "INSERT INTO planning (job, due) VALUES ($1, $2) ON CONFLICT (job) DO UPDATE SET "
      "due = CASE WHEN excluded.due < planning.due THEN excluded.due ELSE planning.due END",
      {job, due}));
  return transaction.Notify({.kind = Notice::Kind::kPlanning, .name = ""});
}

Result<void> MarkChanged(Transaction& transaction, std::string_view job, Milliseconds now) {
  PERSEUS_RETURN_IF_ERROR(
      transaction.Run("UPDATE jobs SET generation = generation + 1 WHERE id = $1", {job}));
  return MakeDue(transaction, job, now);
}

Result<std::optional<PlanningTask>> SqlStore::ClaimPlanning(std::string_view worker,
                                                            Milliseconds now, Milliseconds for_ms) {
  using Claim = std::optional<PlanningTask>;
  return Write<Claim>([&](Transaction& transaction) -> Result<Claim> {
    const Milliseconds until = now + for_ms;
    PERSEUS_ASSIGN_OR_RETURN(
        Rows claimed,
        transaction.Run(
            fmt::format(
                "UPDATE planning SET worker = $1, until = $2, due = $3 WHERE job = "
                "(SELECT job FROM planning WHERE {0} <= $4 ORDER BY {1} DESC, {0} LIMIT 1 {2}) "
                "RETURNING job, {1}",
                kClaimable, kIsAwaited, database_->dialect().skip_locked),
            {worker, until, kNever, now}));
    if (claimed.empty()) return std::nullopt;
    Row& row = claimed.front();
    return PlanningTask{.job = row.TakeText(0),
                        .worker = std::string(worker),
                        .until = until,
                        .is_awaited = row.Integer(1) != 0};
  });
}

Result<bool> SqlStore::RenewPlanning(const PlanningTask& task, Milliseconds now,
                                     Milliseconds for_ms) {
  return Write<bool>([&](Transaction& transaction) -> Result<bool> {
    PERSEUS_ASSIGN_OR_RETURN(
        const Rows renewed,
        transaction.Run(
            "UPDATE planning SET until = $3 WHERE job = $1 AND worker = $2 RETURNING job",
            {task.job, task.worker, now + for_ms}));
    return !renewed.empty();
  });
}

Result<void> SqlStore::ReleasePlanning(const PlanningTask& task, Milliseconds due) {
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_ASSIGN_OR_RETURN(const Rows released,
                             transaction.Run("UPDATE planning SET worker = '', until = 0, due = "
                                             "CASE WHEN due < $3 THEN due ELSE $3 END "
                                             "WHERE job = $1 AND worker = $2 RETURNING job",
                                             {task.job, task.worker, due}));
    if (released.empty()) return {};
    return transaction.Notify({.kind = Notice::Kind::kPlanning, .name = ""});
  });
}

Result<bool> SqlStore::IsWantedAgain(const PlanningTask& task, Milliseconds now) {
  const auto wanted = ReadOne("SELECT 1 FROM planning WHERE job = $1 AND worker = $2 AND due <= $3",
                              {task.job, task.worker, now}, [](Row&) { return true; });
  if (!wanted) return Fail(wanted);
  return wanted->has_value();
}

Result<bool> SqlStore::IsPlanningAwaited(Milliseconds now) {
  const auto awaited =
      ReadOne(fmt::format("SELECT 1 FROM planning WHERE {} <= $1 AND {} = 1 LIMIT 1", kClaimable,
                          kIsAwaited),
              {now}, [](Row&) { return true; });
  if (!awaited) return Fail(awaited);
  return awaited->has_value();
}

Result<std::optional<Milliseconds>> SqlStore::NextPlanning() {
  return ReadOne(fmt::format("SELECT {0} FROM planning ORDER BY {0} LIMIT 1", kClaimable), {},
                 [](Row& row) { return row.Integer(0); });
}

Result<bool> SqlStore::CompletePlanning(const PlanningTask& task, const PlanningOutcome& outcome,
                                        Milliseconds now) {
  return Write<bool>([&](Transaction& transaction) -> Result<bool> {
    const Result<std::optional<LockedJob>> job = LockJob(transaction, task.job);
    if (!job) return Fail(job);
    if (!*job || (*job)->has_ended) return false;
    PERSEUS_ASSIGN_OR_RETURN(
        const Rows claim,
        transaction.Run(fmt::format("SELECT due FROM planning WHERE job = $1 AND worker = $2 {}",
                                    database_->dialect().for_update),
                        {task.job, task.worker}));
    if (claim.empty()) return false;

    const bool is_current = (*job)->generation == outcome.generation;
    // Else it may be of an older profile; the planning that is due again makes another.
    if (outcome.frontier && is_current) {
      PERSEUS_RETURN_IF_ERROR(
          PutFrontier(transaction, task.job, (*job)->profile_version, *outcome.frontier));
    }
    if (outcome.assignment) {
      PERSEUS_RETURN_IF_ERROR(AddAssignment(transaction, task.job, (*job)->assignment_version + 1,
                                            *outcome.assignment, now));
    }
    if (outcome.amended_assignment) {
      const auto amended = RunSteps(
          transaction, {{"UPDATE assignments SET body = $3 WHERE job = $1 AND version = $2",
                         {task.job, (*job)->assignment_version, *outcome.amended_assignment}}});
      if (!amended) return Fail(amended);
    }
    for (const auto& [id, slug] : outcome.renamed_plans) {
      const auto renamed = RunSteps(
          transaction,
          {{"UPDATE plans SET slug = $3 WHERE job = $1 AND id = $2", {task.job, id, slug}}});
      if (!renamed) return Fail(renamed);
    }
    // After the assignment, which keep the plans that they name.
    for (PlanRecord plan : outcome.plans) {
      plan.job = task.job;
      PERSEUS_RETURN_IF_ERROR(InsertPlan(transaction, std::move(plan), now));
    }
    PERSEUS_RETURN_IF_ERROR(
        transaction.Run("UPDATE jobs SET status = $2, problem = $3, planned = $4 WHERE id = $1",
                        {task.job, outcome.status, outcome.problem, outcome.generation}));
    const Milliseconds due = std::min(
        {claim.front().Integer(0), is_current ? kNever : now, outcome.again_at.value_or(kNever)});
    PERSEUS_RETURN_IF_ERROR(Finish(transaction, task.job, due));
    return true;
  });
}

Result<void> SqlStore::RaiseAssignmentVersion(std::string_view job, std::int64_t version,
                                              Milliseconds now) {
  if (version > kMostAssignment) {
    return Fail(
        "{} is no version of a job's assignment: none came that far (take it from the assignment)",
        version);
  }
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_ASSIGN_OR_RETURN(const std::optional<LockedJob> locked, LockJob(transaction, job));
    if (!locked || locked->has_ended || locked->assignment_version >= version) return {};
    PERSEUS_ASSIGN_OR_RETURN(
        Rows newest,
        transaction.Run("SELECT body FROM assignments WHERE job = $1 ORDER BY version DESC LIMIT 1",
                        {job}));
    if (newest.empty()) {
      return RunSteps(transaction,
                      {{"UPDATE jobs SET assignment_version = $2 WHERE id = $1", {job, version}}});
    }
    return AddAssignment(transaction, job, version + 1, newest.front().TakeText(0), now);
  });
}

Result<void> SqlStore::WantPlanning(std::string_view job, Milliseconds due) {
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_ASSIGN_OR_RETURN(const std::optional<LockedJob> locked, LockJob(transaction, job));
    if (!locked || locked->has_ended) return {};
    return MakeDue(transaction, job, due);
  });
}

}  // namespace perseus::store
