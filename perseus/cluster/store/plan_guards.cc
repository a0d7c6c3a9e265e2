// Stores the guards of plans (telemetry/plan_guard.h).
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "perseus/base/json_text.h"
#include "perseus/cluster/store/audit.h"
#include "perseus/cluster/store/statements.h"
#include "perseus/cluster/store/store.h"

namespace perseus::store {
namespace {

std::string GuardJson(const GuardRecord& guard) {
  nlohmann::ordered_json json{{"state", Name(guard.state)},
                              {"profile_version", guard.profile_version},
                              {"with_plan", guard.with_plan}};
  if (guard.without_plan > 0) json["without_plan"] = guard.without_plan;
  return JsonText(json);
}

Result<Rows> WriteGuard(Transaction& transaction, const GuardRecord& guard,
                        std::optional<GuardState> before) {
  return transaction.Run(
      "INSERT INTO plan_guards (job, state, profile_version, target, with_plan, without_plan, "
      "error, since, why) SELECT id, $2, $3, $4, $5, $6, $7, $8, $9 FROM jobs WHERE id = $1 AND "
      "profile_version = $3 AND target = $4 AND $10 = COALESCE((SELECT state FROM plan_guards "
      "WHERE job = $1 AND profile_version = $3 AND target = $4), '') ON CONFLICT (job) DO UPDATE "
      "SET state = excluded.state, profile_version = excluded.profile_version, "
      "target = excluded.target, with_plan = excluded.with_plan, "
      "without_plan = excluded.without_plan, error = excluded.error, since = excluded.since, "
      "why = excluded.why RETURNING job",
      {guard.job, Name(guard.state), guard.profile_version, guard.target, guard.with_plan,
       guard.without_plan, guard.error, guard.since, guard.why, before ? Name(*before) : ""});
}

}  // namespace

Result<std::optional<GuardRecord>> Store::FindGuard(const JobRecord& job) {
  return ReadOne(*database_,
                 "SELECT job, state, profile_version, target, with_plan, without_plan, error, "
                 "since, why FROM plan_guards WHERE job = $1 AND profile_version = $2 AND target "
                 "= $3",
                 {job.id, job.profile_version, job.target}, [](Row& row) -> Result<GuardRecord> {
                   GuardRecord guard;
                   PERSEUS_RETURN_IF_ERROR(row.Take(
                       guard.job, guard.state, guard.profile_version, guard.target, guard.with_plan,
                       guard.without_plan, guard.error, guard.since, guard.why));
                   return guard;
                 });
}

Result<bool> Store::PutGuard(const GuardRecord& guard, std::optional<GuardState> before,
                             Milliseconds now) {
  return Write<bool>(*database_, [&](Transaction& transaction) -> Result<bool> {
    PERSEUS_ASSIGN_OR_RETURN(const LockedJob locked,
                             LockRunningJob(*database_, transaction, guard.job));
    PERSEUS_ASSIGN_OR_RETURN(const Rows written, WriteGuard(transaction, guard, before));
    if (written.empty()) return false;
    PERSEUS_RETURN_IF_ERROR(MarkChanged(transaction, guard.job, now));
    const std::string_view verb = guard.state == GuardState::kTrial       ? "try"
                                  : guard.state == GuardState::kWithdrawn ? "withdraw"
                                                                          : "clear";
    PERSEUS_RETURN_IF_ERROR(AppendAudit(
        transaction, {.at = now,
                      .action = fmt::format("plan.{}", verb),
                      .job = guard.job,
                      .key = locked.key,
                      .by = {.reason = guard.why},
                      .before = before ? fmt::format(R"({{"state":"{}"}})", Name(*before)) : "",
                      .after = GuardJson(guard)}));
    return true;
  });
}

}  // namespace perseus::store
