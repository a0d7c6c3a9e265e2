// Stores stragglers and ended stragglers. Limits how fast declared stragglers may change plans.
//
// Monitoring may report a pipeline as slow, then as healthy, and then as slow again. If each report
// made a new assignment, changing plans would cost more than it saves. So changes of declared
// stragglers are damped, like changes of detected stragglers (telemetry/straggler_detector.h). The
// first two changes of a pipeline within kFlapping take effect at once. After n changes, planning
// waits 2^n s, at most kMaxDamping. Then it plans the newest state. Other changes of the job do not
// wait.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "perseus/cluster/store/audit.h"
#include "perseus/cluster/store/statements.h"
#include "perseus/cluster/store/store.h"

namespace perseus::store {
namespace {

constexpr Milliseconds kFlapping = 60'000;
constexpr Milliseconds kMaxDamping = 32'000;
constexpr int kUndampedChanges = 2;

// Returns the subject of a record in the audit trail.
std::string SubjectOf(int dp_rank, StragglerSource source) {
  return fmt::format("pipeline {} {}", dp_rank, Name(source));
}
std::string StragglerText(double slowdown, Milliseconds starts, Milliseconds expires) {
  return fmt::format(R"({{"expires_ms":{},"slowdown":{},"starts_ms":{}}})", expires.count(),
                     slowdown, starts.count());
}
std::string StragglerText(const Row& row) {
  return StragglerText(row.Real(0), row.Time(1), row.Time(2));
}

// Copies the current record of the straggler, if any, to the history. If the end of the record has
// passed, the reason is kExpired.
Result<void> KeepPastStraggler(Transaction& transaction, std::string_view job, int dp_rank,
                               StragglerSource source, StragglerEnd why, Milliseconds now) {
  return RunAll(
      transaction,
      {{"INSERT INTO straggler_history (job, dp_rank, source, slowdown, starts, ended, measured, "
        "why) SELECT job, dp_rank, source, slowdown, starts, "
        "CASE WHEN expires <> 0 AND expires < $4 THEN expires ELSE $4 END, measured, "
        "CASE WHEN expires <> 0 AND expires < $4 THEN $6 ELSE $5 END "
        "FROM stragglers WHERE job = $1 AND dp_rank = $2 AND source = $3",
        {job, dp_rank, Name(source), now, Name(why), Name(StragglerEnd::kExpired)}},
       {"DELETE FROM straggler_history WHERE job = $1 AND number <= (SELECT number FROM "
        "straggler_history WHERE job = $1 ORDER BY number DESC LIMIT 1 OFFSET $2)",
        {job, Store::kMaxPastStragglers}}});
}

// Returns when planning is due after a change of this straggler at `now`. Call it after
// KeepPastStraggler.
Result<Milliseconds> DampedDue(Transaction& transaction, std::string_view job, int dp_rank,
                               StragglerSource source, Milliseconds now) {
  if (source == StragglerSource::kDetected) return now;
  PERSEUS_ASSIGN_OR_RETURN(
      const Rows rows,
      transaction.Run("SELECT COUNT(*) FROM straggler_history WHERE job = $1 AND dp_rank = $2 AND "
                      "source <> $5 AND ended > $3 AND ended <= $4",
                      {job, dp_rank, now - kFlapping, now, Name(StragglerSource::kDetected)}));
  const std::int64_t changes = rows.front().Integer(0);
  if (changes < kUndampedChanges) return now;
  constexpr std::int64_t kMaxExponent = 10;  // 2^10 s is far above kMaxDamping.
  return now + std::min(kMaxDamping, Milliseconds(1'000L << std::min(changes, kMaxExponent)));
}

}  // namespace

Result<void> Store::PutStraggler(const StragglerRecord& straggler, Milliseconds now,
                                 const Author& by) {
  if (!std::isfinite(straggler.slowdown) || straggler.slowdown < 1) {
    return Fail("{} is not a slowdown (expected a number of at least 1, such as 1.25)",
                straggler.slowdown);
  }
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_ASSIGN_OR_RETURN(const auto locked,
                             LockRunningJob(*database_, transaction, straggler.job));
    PERSEUS_ASSIGN_OR_RETURN(
        const Rows old,
        transaction.Run("SELECT slowdown, starts, expires FROM stragglers WHERE job = $1 AND "
                        "dp_rank = $2 AND source = $3",
                        {straggler.job, straggler.dp_rank, Name(straggler.source)}));
    const AuditRecord record{
        .at = now,
        .action = "straggler.put",
        .job = straggler.job,
        .key = locked.key,
        .subject = SubjectOf(straggler.dp_rank, straggler.source),
        .by = by,
        .before = old.empty() ? "" : StragglerText(old.front()),
        .after = StragglerText(straggler.slowdown, straggler.starts, straggler.expires)};
    // If a record only extends an active straggler, it changes no plan.
    PERSEUS_ASSIGN_OR_RETURN(
        const auto extended,
        transaction.Run(
            "UPDATE stragglers SET expires = $5 WHERE job = $1 AND dp_rank = $2 AND source = $3 "
            "AND slowdown = $4 AND starts <= $7 AND $6 <= $7 AND (expires = 0 OR "
            "expires > $7) "
            "AND ($5 = 0 OR (expires <> 0 AND expires <= $5)) RETURNING job",
            {straggler.job, straggler.dp_rank, Name(straggler.source), straggler.slowdown,
             straggler.expires, straggler.starts, now}));
    if (!extended.empty()) {
      // The server itself extends a detected straggler with each report, so the audit trail does
      // not record these extensions.
      if (straggler.source == StragglerSource::kDetected) return {};
      return AppendAudit(transaction, record);
    }
    PERSEUS_RETURN_IF_ERROR(KeepPastStraggler(transaction, straggler.job, straggler.dp_rank,
                                              straggler.source, StragglerEnd::kReplaced, now));
    PERSEUS_ASSIGN_OR_RETURN(const auto due, DampedDue(transaction, straggler.job,
                                                       straggler.dp_rank, straggler.source, now));
    PERSEUS_RETURN_IF_ERROR(transaction.Run(
        "INSERT INTO stragglers (job, dp_rank, source, slowdown, starts, expires) "
        "VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (job, dp_rank, source) DO UPDATE SET "
        "slowdown = excluded.slowdown, starts = excluded.starts, expires = excluded.expires, "
        "suspended = 0, measured = 0",
        {straggler.job, straggler.dp_rank, Name(straggler.source), straggler.slowdown,
         straggler.starts, straggler.expires}));
    PERSEUS_RETURN_IF_ERROR(MarkChanged(transaction, straggler.job, due));
    return AppendAudit(transaction, record);
  });
}

Result<bool> Store::DeleteStraggler(std::string_view job, int dp_rank, StragglerSource source,
                                    Milliseconds now, const Author& by) {
  return Write<bool>(*database_, [&](Transaction& transaction) -> Result<bool> {
    PERSEUS_ASSIGN_OR_RETURN(const auto locked, LockJob(*database_, transaction, job));
    PERSEUS_RETURN_IF_ERROR(
        KeepPastStraggler(transaction, job, dp_rank, source, StragglerEnd::kWithdrawn, now));
    PERSEUS_ASSIGN_OR_RETURN(
        const Rows gone,
        transaction.Run(
            "DELETE FROM stragglers WHERE job = $1 AND dp_rank = $2 AND source = $3 RETURNING "
            "slowdown, starts, expires",
            {job, dp_rank, Name(source)}));
    if (gone.empty()) return false;
    PERSEUS_ASSIGN_OR_RETURN(const auto due, DampedDue(transaction, job, dp_rank, source, now));
    PERSEUS_RETURN_IF_ERROR(MarkChanged(transaction, job, due));
    PERSEUS_RETURN_IF_ERROR(AppendAudit(transaction, {.at = now,
                                                      .action = "straggler.delete",
                                                      .job = std::string(job),
                                                      .key = locked ? locked->key : "",
                                                      .subject = SubjectOf(dp_rank, source),
                                                      .by = by,
                                                      .before = StragglerText(gone.front())}));
    return true;
  });
}

Result<std::vector<StragglerRecord>> Store::ListStragglers(std::string_view job) {
  return ReadAll(
      *database_,
      "SELECT job, dp_rank, source, slowdown, starts, expires, suspended, measured FROM "
      "stragglers WHERE job = $1 "
      "ORDER BY dp_rank, source",
      {job}, [](Row& row) -> Result<StragglerRecord> {
        StragglerRecord straggler;
        PERSEUS_RETURN_IF_ERROR(row.Take(straggler.job, straggler.dp_rank, straggler.source,
                                         straggler.slowdown, straggler.starts, straggler.expires,
                                         straggler.suspended, straggler.measured));
        return straggler;
      });
}

Result<void> Store::MarkStraggler(const StragglerRecord& straggler, Milliseconds now) {
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_ASSIGN_OR_RETURN(const auto locked, LockJob(*database_, transaction, straggler.job));
    PERSEUS_ASSIGN_OR_RETURN(
        const Rows marked,
        transaction.Run("UPDATE stragglers SET suspended = $4, measured = $5 WHERE job = $1 AND "
                        "dp_rank = $2 AND source = $3 AND slowdown = $6 AND "
                        "(suspended = 0) <> ($4 = 0) RETURNING job",
                        {straggler.job, straggler.dp_rank, Name(straggler.source),
                         straggler.suspended, straggler.measured, straggler.slowdown}));
    if (marked.empty() || !locked) return {};
    PERSEUS_RETURN_IF_ERROR(MarkChanged(transaction, straggler.job, now));
    const bool is_suspended = straggler.suspended != 0;
    return AppendAudit(
        transaction, {.at = now,
                      .action = is_suspended ? "straggler.suspend" : "straggler.reinstate",
                      .job = straggler.job,
                      .key = locked->key,
                      .subject = SubjectOf(straggler.dp_rank, straggler.source),
                      .by = {.reason = fmt::format("measurement {} the notice",
                                                   is_suspended ? "contradicts" : "agrees with")},
                      .before = fmt::format(R"({{"slowdown":{},"suspended":{}}})",
                                            straggler.slowdown, !is_suspended),
                      .after = fmt::format(R"({{"slowdown":{},"suspended":{},"measured":{}}})",
                                           straggler.slowdown, is_suspended, straggler.measured)});
  });
}

Result<std::vector<PastStragglerRecord>> Store::ListPastStragglers(std::string_view job,
                                                                   int limit) {
  return ReadAll(
      *database_,
      "SELECT dp_rank, source, slowdown, starts, ended, measured, why FROM "
      "straggler_history WHERE job = $1 ORDER BY number DESC LIMIT $2",
      {job, AsLimit(limit)}, [](Row& row) -> Result<PastStragglerRecord> {
        PastStragglerRecord past;
        PERSEUS_RETURN_IF_ERROR(row.Take(past.dp_rank, past.source, past.slowdown, past.starts,
                                         past.ended, past.measured, past.why));
        return past;
      });
}

}  // namespace perseus::store
