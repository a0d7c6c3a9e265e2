// Jobs, their profiles and measurements.
#include <fmt/format.h>

#include <limits>

#include "perseus/base/excerpt.h"
#include "perseus/cluster/store/sql_store.h"

namespace perseus::store {
namespace {

constexpr std::string_view kJobColumns =
    "id, key, body, target, status, problem, created, ended, profile_version, generation, planned, "
    "assignment_version, last_step, last_step_at, summary";

JobRecord JobOf(Row& row) {
  return {.id = row.TakeText(0),
          .key = row.TakeText(1),
          .body = row.TakeText(2),
          .target = row.TakeText(3),
          .status = row.TakeText(4),
          .problem = row.TakeText(5),
          .created = row.Integer(6),
          .ended = row.Integer(7),
          .profile_version = row.Integer(8),
          .generation = row.Integer(9),
          .planned = row.Integer(10),
          .assignment_version = row.Integer(11),
          .last_step = row.Integer(12),
          .last_step_at = row.Integer(13),
          .summary = row.TakeText(14)};
}

// A job whose steps begin again has been restarted after so long.
constexpr Milliseconds kRestarted = 60'000;

// Nothing if there is a job of that key, or if it ended just now.
Result<std::optional<Store::Created>> TryCreate(Transaction& transaction, const NewJob& job,
                                                Milliseconds now) {
  PERSEUS_ASSIGN_OR_RETURN(
      Rows made,
      transaction.Run(
          fmt::format(
              "INSERT INTO jobs (id, key, body, target, created) VALUES ($1, $2, $3, $4, $5) "
              "ON CONFLICT (key) WHERE ended = 0 DO NOTHING RETURNING {}",
              kJobColumns),
          {MakeId("j-"), job.key, job.body, job.target, now}));
  if (!made.empty()) return Store::Created{.job = JobOf(made.front()), .is_new = true};
  PERSEUS_ASSIGN_OR_RETURN(
      Rows there,
      transaction.Run(fmt::format("SELECT {} FROM jobs WHERE key = $1 AND ended = 0", kJobColumns),
                      {job.key}));
  if (there.empty()) return std::nullopt;
  return Store::Created{.job = JobOf(there.front()), .is_new = false};
}

}  // namespace

Result<Store::Created> SqlStore::CreateJob(const NewJob& job, Milliseconds now) {
  return Write<Created>([&](Transaction& transaction) -> Result<Created> {
    constexpr int kTries = 3;  // It would have to end between two statements, each time.
    for (int i = 0; i < kTries; ++i) {
      PERSEUS_ASSIGN_OR_RETURN(std::optional<Created> created, TryCreate(transaction, job, now));
      if (created) return std::move(*created);
    }
    return FailAs(ErrorKind::kSystem, "job {} begins and ends all the time (try again)",
                  Excerpt(job.key));
  });
}

Result<std::optional<JobRecord>> SqlStore::FindJob(std::string_view id_or_key) {
  return ReadOne(fmt::format("SELECT {} FROM jobs WHERE id = $1 OR key = $1 ORDER BY "
                             "CASE WHEN id = $1 THEN 0 WHEN ended = 0 THEN 1 ELSE 2 END, "
                             "number DESC LIMIT 1",
                             kJobColumns),
                 {id_or_key}, JobOf);
}

Result<std::vector<JobRecord>> SqlStore::ListJobs(Which which, std::string_view after, int limit) {
  std::int64_t first = 0;
  if (!after.empty()) {
    const auto number = ReadOne("SELECT number FROM jobs WHERE id = $1", {after},
                                [](Row& row) { return row.Integer(0); });
    if (!number) return Fail(number);
    if (!*number) {
      return Fail("there is no job {} to go on after (list from the first)", Excerpt(after));
    }
    first = **number;
  }
  const std::string_view running = which == Which::kRunning ? "AND ended = 0" : "";
  return ReadAll(fmt::format("SELECT {} FROM jobs WHERE number > $1 {} ORDER BY number LIMIT $2",
                             kJobColumns, running),
                 {first, AsLimit(limit)}, JobOf);
}

Result<void> SqlStore::EndJob(std::string_view job, Milliseconds now) {
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_ASSIGN_OR_RETURN(const std::optional<LockedJob> locked, LockJob(transaction, job));
    if (!locked) return Fail("there is no job {} (list those that are there)", Excerpt(job));
    if (locked->has_ended) return {};
    if (auto ended =
            RunSteps(transaction, {{"UPDATE jobs SET ended = $2 WHERE id = $1", {job, now}},
                                   {"DELETE FROM planning WHERE job = $1", {job}},
                                   {"DELETE FROM stragglers WHERE job = $1", {job}}});
        !ended) {
      return ended;
    }
    PERSEUS_ASSIGN_OR_RETURN(
        Rows nodes, transaction.Run("DELETE FROM nodes WHERE job = $1 RETURNING node", {job}));
    for (Row& node : nodes) {
      const Notice notice{.kind = Notice::Kind::kNode, .name = node.TakeText(0)};
      if (auto told = transaction.Notify(notice); !told) return told;
    }
    return {};
  });
}

Result<void> SqlStore::SetTarget(std::string_view job, std::string_view target, Milliseconds now) {
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_RETURN_IF_ERROR(LockRunningJob(transaction, job));
    PERSEUS_RETURN_IF_ERROR(
        transaction.Run("UPDATE jobs SET target = $2 WHERE id = $1", {job, target}));
    return MarkChanged(transaction, job, now);
  });
}

Result<void> SqlStore::Heartbeat(std::string_view job, Steps steps, std::int64_t step,
                                 std::string_view summary, Milliseconds at) {
  // Whatever was said, the job's restart comes after it: clocks may differ a little.
  const Milliseconds said_until =
      steps == Steps::kAnew ? std::numeric_limits<Milliseconds>::max() : at - kRestarted;
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    return RunSteps(transaction,
                    {{"UPDATE jobs SET last_step = $2, summary = $3, last_step_at = $4 "
                      "WHERE id = $1 AND ended = 0 AND (last_step < $2 OR last_step_at <= $5)",
                      {job, step, summary, at, said_until}}});
  });
}

Result<int> SqlStore::Prune(Milliseconds before, int limit) {
  return Write<int>([&](Transaction& transaction) -> Result<int> {
    PERSEUS_ASSIGN_OR_RETURN(
        const Rows deleted,
        transaction.Run(
            "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE ended > 0 AND ended < $1 "
            "ORDER BY ended LIMIT $2) RETURNING id",
            {before, AsLimit(limit)}));
    PERSEUS_RETURN_IF_ERROR(transaction.Run("DELETE FROM node_claims WHERE seen < $1", {before}));
    const std::string_view shrink = database_->dialect().shrink;
    if (!deleted.empty() && !shrink.empty()) {
      if (const auto shrunk = transaction.Run(shrink, {}); !shrunk) return Fail(shrunk);
    }
    return static_cast<int>(deleted.size());
  });
}

Result<std::int64_t> SqlStore::PutProfile(std::string_view job, std::string_view csv,
                                          Milliseconds now, std::int64_t measured_to) {
  return Write<std::int64_t>([&](Transaction& transaction) -> Result<std::int64_t> {
    PERSEUS_ASSIGN_OR_RETURN(const LockedJob locked, LockRunningJob(transaction, job));
    const auto used =
        RunSteps(transaction,
                 {{"DELETE FROM measurements WHERE job = $1 AND number <= $2", {job, measured_to}},
                  {"UPDATE jobs SET measured = (SELECT COALESCE(SUM(LENGTH(body)), 0) "
                   "FROM measurements WHERE job = $1) WHERE id = $1",
                   {job}}});
    if (!used) return Fail(used);
    PERSEUS_ASSIGN_OR_RETURN(
        const Rows same,
        transaction.Run("SELECT 1 FROM profiles WHERE job = $1 AND csv = $2", {job, csv}));
    if (!same.empty()) return locked.profile_version;
    const std::int64_t version = locked.profile_version + 1;
    const auto put = RunSteps(
        transaction, {{"INSERT INTO profiles (job, csv) VALUES ($1, $2) "
                       "ON CONFLICT (job) DO UPDATE SET csv = excluded.csv",
                       {job, csv}},
                      {"UPDATE jobs SET profile_version = $2 WHERE id = $1", {job, version}}});
    if (!put) return Fail(put);
    PERSEUS_RETURN_IF_ERROR(MarkChanged(transaction, job, now));
    return version;
  });
}

Result<std::optional<Store::Profile>> SqlStore::FindProfile(std::string_view job) {
  return ReadOne(
      "SELECT jobs.profile_version, profiles.csv FROM jobs JOIN profiles ON profiles.job = jobs.id "
      "WHERE jobs.id = $1",
      {job}, [](Row& row) { return Profile{.version = row.Integer(0), .csv = row.TakeText(1)}; });
}

Result<bool> SqlStore::AddMeasurements(std::string_view job, std::string_view rows,
                                       Milliseconds now) {
  return Write<bool>([&](Transaction& transaction) -> Result<bool> {
    // The job is locked first, so what has a higher number was added later.
    PERSEUS_RETURN_IF_ERROR(LockRunningJob(transaction, job));
    const auto size = static_cast<std::int64_t>(rows.size());
    PERSEUS_ASSIGN_OR_RETURN(const Rows fits,
                             transaction.Run("UPDATE jobs SET measured = measured + $2 WHERE id = "
                                             "$1 AND measured <= $3 RETURNING id",
                                             {job, size, kMostMeasured - size}));
    if (fits.empty()) return false;
    PERSEUS_RETURN_IF_ERROR(transaction.Run(
        "INSERT INTO measurements (job, body, created) VALUES ($1, $2, $3)", {job, rows, now}));
    return true;
  });
}

Result<Store::Measured> SqlStore::Measurements(std::string_view job) {
  Measured measured;
  const auto rows = ReadAll("SELECT number, body FROM measurements WHERE job = $1 ORDER BY number",
                            {job}, [&](Row& row) {
                              measured.last = row.Integer(0);
                              measured.rows.push_back(row.TakeText(1));
                              return measured.last;
                            });
  if (!rows) return Fail(rows);
  return measured;
}

}  // namespace perseus::store
