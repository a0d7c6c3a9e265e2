#include "perseus/cluster/store/straggler_history.h"

#include <fmt/format.h>

#include <algorithm>

#include "perseus/cluster/store/audit.h"
#include "perseus/cluster/store/statements.h"
#include "perseus/cluster/store/store.h"

namespace perseus::store {

Result<void> KeepPastStraggler(Transaction& transaction, std::string_view job, int dp_rank,
                               std::string_view source, std::string_view why, Milliseconds now) {
  return RunAll(
      transaction,
      {{"INSERT INTO straggler_history (job, dp_rank, source, slowdown, starts, ended, measured, "
        "why) SELECT job, dp_rank, source, slowdown, starts, "
        "CASE WHEN expires <> 0 AND expires < $4 THEN expires ELSE $4 END, measured, "
        "CASE WHEN expires <> 0 AND expires < $4 THEN 'expired' ELSE $5 END "
        "FROM stragglers WHERE job = $1 AND dp_rank = $2 AND source = $3",
        {job, dp_rank, source, now, why}},
       {"DELETE FROM straggler_history WHERE job = $1 AND number <= (SELECT number FROM "
        "straggler_history WHERE job = $1 ORDER BY number DESC LIMIT 1 OFFSET $2)",
        {job, Store::kMaxPastStragglers}}});
}

Result<Milliseconds> DampedDue(Transaction& transaction, std::string_view job, int dp_rank,
                               std::string_view source, Milliseconds now) {
  if (source == "detected") return now;
  PERSEUS_ASSIGN_OR_RETURN(
      const Rows rows,
      transaction.Run("SELECT COUNT(*) FROM straggler_history WHERE job = $1 AND dp_rank = $2 AND "
                      "source <> 'detected' AND ended > $3 AND ended <= $4",
                      {job, dp_rank, now - kFlapping, now}));
  const std::int64_t changes = rows.front().Integer(0);
  if (changes < kUndampedChanges) return now;
  constexpr std::int64_t kMaxExponent = 10;  // Far above kMaxDamping.
  return now +
         std::min<Milliseconds>(kMaxDamping, Milliseconds{1000} << std::min(changes, kMaxExponent));
}

Result<void> Store::MarkStraggler(const StragglerRecord& straggler, Milliseconds now) {
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_ASSIGN_OR_RETURN(const auto locked, LockJob(*database_, transaction, straggler.job));
    PERSEUS_ASSIGN_OR_RETURN(
        const Rows marked,
        transaction.Run("UPDATE stragglers SET suspended = $4, measured = $5 WHERE job = $1 AND "
                        "dp_rank = $2 AND source = $3 AND slowdown = $6 AND "
                        "(suspended = 0) <> ($4 = 0) RETURNING job",
                        {straggler.job, straggler.dp_rank, straggler.source, straggler.suspended,
                         straggler.measured, straggler.slowdown}));
    if (marked.empty() || !locked) return {};
    PERSEUS_RETURN_IF_ERROR(MarkChanged(transaction, straggler.job, now));
    const bool is_suspended = straggler.suspended != 0;
    return AppendAudit(
        transaction, {.at = now,
                      .action = is_suspended ? "straggler.suspend" : "straggler.reinstate",
                      .job = straggler.job,
                      .key = locked->key,
                      .subject = fmt::format("pipeline {} {}", straggler.dp_rank, straggler.source),
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
  return ReadAll(*database_,
                 "SELECT dp_rank, source, slowdown, starts, ended, measured, why FROM "
                 "straggler_history WHERE job = $1 ORDER BY number DESC LIMIT $2",
                 {job, AsLimit(limit)}, [](Row& row) {
                   PastStragglerRecord past;
                   row.Take(past.dp_rank, past.source, past.slowdown, past.starts, past.ended,
                            past.measured, past.why);
                   return past;
                 });
}

}  // namespace perseus::store
