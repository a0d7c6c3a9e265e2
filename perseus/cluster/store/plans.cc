// Stores the results of planning: frontiers, plans and assignments.
#include <fmt/core.h>

#include "perseus/base/excerpt.h"
#include "perseus/base/random_id.h"
#include "perseus/cluster/store/statements.h"
#include "perseus/cluster/store/store.h"

namespace perseus::store {
namespace {

constexpr std::int64_t kMaxPlans = 200;

constexpr std::string_view kPlanColumns =
    "plans.id, plans.job, plans.slug, plans.profile_version, plans.created, plans.time_s, "
    "plans.energy_j, plans.baseline_time_s, plans.baseline_energy_j";

PlanRecord PlanOf(Row& row) {
  PlanRecord plan;
  row.Take(plan.id, plan.job, plan.slug, plan.profile_version, plan.created, plan.time_s,
           plan.energy_j, plan.baseline_time_s, plan.baseline_energy_j, plan.body);
  return plan;
}

Result<AssignmentRecord> AssignmentOf(Row& row) {
  AssignmentRecord record;
  std::string body;
  row.Take(record.job, record.version, body, record.created);
  PERSEUS_ASSIGN_OR_RETURN(record.assignment, ParsePlannedAssignment(body));
  return record;
}

}  // namespace

Result<PlanRecord> InsertPlan(Transaction& transaction, PlanRecord plan, Milliseconds now) {
  if (plan.id.empty()) plan.id = "p-" + RandomHex(kBytesOfId);
  if (plan.created == 0) plan.created = now;
  PERSEUS_ASSIGN_OR_RETURN(
      const Rows added,
      transaction.Run(
          "INSERT INTO plans (id, job, slug, profile_version, body, created, time_s, energy_j, "
          "baseline_time_s, baseline_energy_j) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) "
          "ON CONFLICT (id) DO NOTHING RETURNING id",
          {plan.id, plan.job, plan.slug, plan.profile_version, plan.body, plan.created, plan.time_s,
           plan.energy_j, plan.baseline_time_s, plan.baseline_energy_j}));
  if (added.empty()) return Fail("plan {} exists already (a plan never changes)", plan.id);
  // An id of a plan has 18 characters, which occur with no other meaning in the text. So a search
  // in the text of an assignment shows whether the assignment names the plan.
  PERSEUS_RETURN_IF_ERROR(transaction.Run(
      "DELETE FROM plans WHERE job = $1 AND number <= (SELECT number FROM plans WHERE job = $1 "
      "ORDER BY number DESC LIMIT 1 OFFSET $2) AND NOT EXISTS (SELECT 1 FROM assignments WHERE "
      "assignments.job = plans.job AND assignments.body LIKE '%' || plans.id || '%')",
      {plan.job, kMaxPlans}));
  return plan;
}

Result<std::optional<std::string>> Store::FindFrontier(std::string_view job) {
  return ReadOne(*database_,
                 "SELECT frontiers.body FROM frontiers JOIN jobs ON jobs.id = frontiers.job "
                 "WHERE jobs.id = $1 AND frontiers.profile_version = jobs.profile_version",
                 {job}, [](Row& row) { return row.TakeText(0); });
}

Result<std::optional<PlanRecord>> Store::FindPlan(std::string_view job, std::string_view slug) {
  return ReadOne(*database_,
                 fmt::format("SELECT {}, plans.body FROM plans JOIN jobs ON jobs.id = plans.job "
                             "WHERE jobs.id = $1 AND plans.slug = $2 "
                             "AND plans.profile_version = jobs.profile_version "
                             "ORDER BY plans.number DESC LIMIT 1",
                             kPlanColumns),
                 {job, slug}, PlanOf);
}

Result<std::optional<PlanRecord>> Store::FindPlanById(std::string_view id) {
  return ReadOne(*database_,
                 fmt::format("SELECT {}, plans.body FROM plans WHERE id = $1", kPlanColumns), {id},
                 PlanOf);
}

Result<std::vector<PlanRecord>> Store::ListPlans(std::string_view job, int limit) {
  return ReadAll(
      *database_,
      fmt::format("SELECT {}, '' FROM plans WHERE job = $1 ORDER BY number DESC LIMIT $2",
                  kPlanColumns),
      {job, AsLimit(limit)}, PlanOf);
}

Result<PlanRecord> Store::AddPlan(PlanRecord plan, Milliseconds now) {
  return Write<PlanRecord>(*database_, [&](Transaction& transaction) -> Result<PlanRecord> {
    PERSEUS_ASSIGN_OR_RETURN(const std::optional<LockedJob> job,
                             LockJob(*database_, transaction, plan.job));
    if (!job) return Fail("job {} does not exist (register it)", Excerpt(plan.job));
    return InsertPlan(transaction, plan, now);
  });
}

Result<std::optional<AssignmentRecord>> Store::FindNewestAssignment(std::string_view job,
                                                                    std::int64_t newest) {
  return ReadOne(
      *database_,
      "SELECT job, version, body, created FROM assignments WHERE job = $1 AND version <= $2 "
      "ORDER BY version DESC LIMIT 1",
      {job, newest}, AssignmentOf);
}

Result<std::vector<AssignmentRecord>> Store::ListAssignments(std::string_view job, int limit) {
  return ReadAll(
      *database_,
      "SELECT job, version, body, created FROM assignments WHERE job = $1 ORDER BY version DESC "
      "LIMIT $2",
      {job, AsLimit(limit)}, AssignmentOf);
}

}  // namespace perseus::store
