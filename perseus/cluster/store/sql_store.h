// The store in SQL. Its functions are spread over the files that its parts are named after:
// jobs.cc, planning.cc, plans.cc, nodes.cc, tokens.cc.
//
// Whoever changes what a job has locks the job's row first (LockJob, or an UPDATE of it), so two
// changes of a job are one after the other, and nobody waits for somebody who waits for him.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/cluster/store/database.h"
#include "perseus/cluster/store/store.h"

namespace perseus::store {

class SqlStore final : public Store {
 public:
  explicit SqlStore(std::unique_ptr<Database> database) : database_(std::move(database)) {}

  // --- jobs
  Result<Created> CreateJob(const NewJob& job, Milliseconds now) override;
  Result<std::optional<JobRecord>> FindJob(std::string_view id_or_key) override;
  Result<std::vector<JobRecord>> ListJobs(Which which, std::string_view after, int limit) override;
  Result<void> EndJob(std::string_view job, Milliseconds now) override;
  Result<void> SetTarget(std::string_view job, std::string_view target, Milliseconds now) override;
  Result<void> Heartbeat(std::string_view job, Steps steps, std::int64_t step,
                         std::string_view summary, Milliseconds at) override;
  Result<int> Prune(Milliseconds before, int limit) override;

  // --- profiles
  Result<std::int64_t> PutProfile(std::string_view job, std::string_view csv, Milliseconds now,
                                  std::int64_t measured_to) override;
  Result<std::optional<Profile>> FindProfile(std::string_view job) override;
  Result<bool> AddMeasurements(std::string_view job, std::string_view rows,
                               Milliseconds now) override;
  Result<Measured> Measurements(std::string_view job) override;

  // --- planning
  Result<std::optional<PlanningTask>> ClaimPlanning(std::string_view worker, Milliseconds now,
                                                    Milliseconds for_ms) override;
  Result<std::optional<Milliseconds>> NextPlanning() override;
  Result<bool> RenewPlanning(const PlanningTask& task, Milliseconds now,
                             Milliseconds for_ms) override;
  Result<void> ReleasePlanning(const PlanningTask& task, Milliseconds due) override;
  Result<bool> IsWantedAgain(const PlanningTask& task, Milliseconds now) override;
  Result<bool> IsPlanningAwaited(Milliseconds now) override;
  Result<bool> CompletePlanning(const PlanningTask& task, const PlanningOutcome& outcome,
                                Milliseconds now) override;
  Result<void> WantPlanning(std::string_view job, Milliseconds due) override;

  // --- plans
  Result<std::optional<std::string>> FindFrontier(std::string_view job) override;
  Result<std::optional<PlanRecord>> FindPlan(std::string_view job, std::string_view slug) override;
  Result<std::optional<PlanRecord>> FindPlanById(std::string_view id) override;
  Result<std::vector<PlanRecord>> ListPlans(std::string_view job, int limit) override;
  Result<PlanRecord> AddPlan(PlanRecord plan, Milliseconds now) override;

  // --- assignment
  Result<std::optional<AssignmentRecord>> NewestAssignment(std::string_view job) override;
  Result<std::vector<AssignmentRecord>> ListAssignments(std::string_view job, int limit) override;
  Result<void> RaiseAssignmentVersion(std::string_view job, std::int64_t version,
                                      Milliseconds now) override;

  // --- nodes
  Result<void> AttachNode(std::string_view job, std::string_view node, std::string_view ranks,
                          Milliseconds now) override;
  Result<void> DetachNode(std::string_view job, std::string_view node) override;
  Result<std::vector<NodeRecord>> NodesOf(std::string_view job) override;
  Result<std::int64_t> CountNodesSilentSince(std::string_view job, Milliseconds time) override;
  Result<std::vector<NodeRecord>> JobsOf(std::string_view node) override;
  Result<std::vector<std::string>> ClaimNodes(const std::vector<NodeClaim>& claims,
                                              Milliseconds now, Milliseconds silent_since) override;
  Result<void> ReleaseNode(const NodeClaim& claim) override;
  Result<void> Acknowledge(const std::vector<NodeRecord>& nodes) override;

  // --- stragglers
  Result<void> PutStraggler(const StragglerRecord& straggler, Milliseconds now) override;
  Result<bool> DeleteStraggler(std::string_view job, int pipeline, std::string_view source,
                               Milliseconds now) override;
  Result<std::vector<StragglerRecord>> Stragglers(std::string_view job) override;

  // --- tokens
  Result<void> AddToken(const TokenRecord& token) override;
  Result<bool> DeleteToken(std::string_view id) override;
  Result<std::vector<TokenRecord>> Tokens() override;

  // --- clients of Zeus' pipeline frequency optimizer
  Result<bool> PutRank(std::string_view job, int rank, int place, std::string_view body) override;
  Result<void> ClearRanks(std::string_view job) override;
  Result<Registered> FindRank(std::string_view job, int rank) override;

  // --- the database itself
  Result<void> Ping() override;
  bool has_replicas() const override;
  Result<void> TellReplicas(const std::vector<std::string>& texts) override;
  Result<void> Listen(std::function<void(const Notice&)> heard) override;

 private:
  // `work(transaction)` returns Result<T>.
  template <typename T, typename Work>
  Result<T> Write(const Work& work) {
    T value{};
    const Result<void> written = database_->Transact([&](Transaction& transaction) -> Result<void> {
      Result<T> outcome = work(transaction);
      if (!outcome) return Fail(outcome);
      value = std::move(*outcome);
      return {};
    });
    if (!written) return Fail(written);
    return value;
  }
  // All rows of a statement, each by `record(row)`.
  template <typename Record>
  auto ReadAll(std::string_view sql, Parameters parameters, const Record& record)
      -> Result<std::vector<decltype(record(std::declval<Row&>()))>> {
    Result<Rows> rows = database_->Read(sql, parameters);
    if (!rows) return Fail(rows);
    std::vector<decltype(record(std::declval<Row&>()))> records;
    records.reserve(rows->size());
    for (Row& row : *rows) records.push_back(record(row));
    return records;
  }
  // The first row, if there is one.
  template <typename Record>
  auto ReadOne(std::string_view sql, Parameters parameters, const Record& record)
      -> Result<std::optional<decltype(record(std::declval<Row&>()))>> {
    auto records = ReadAll(sql, parameters, record);
    if (!records) return Fail(records);
    if (records->empty()) return std::nullopt;
    return std::move(records->front());
  }

  struct LockedJob {
    bool has_ended = false;
    std::int64_t generation = 0;
    std::int64_t profile_version = 0;
    std::int64_t assignment_version = 0;
  };
  // Nobody else changes the job until the transaction's end. Nothing if there is none.
  Result<std::optional<LockedJob>> LockJob(Transaction& transaction, std::string_view job) const;
  // Fails (kInput) if there is none that has not ended.
  Result<LockedJob> LockRunningJob(Transaction& transaction, std::string_view job) const;
  // Nobody else changes these nodes of it; the ranks of those that there are.
  Result<std::map<std::string, std::string>> LockNodes(
      Transaction& transaction, std::string_view job,
      const std::set<std::string, std::less<>>& nodes) const;

  const std::unique_ptr<Database> database_;
};

// What several parts of the store do in a transaction.

struct Step {
  std::string_view sql;
  Parameters parameters;
};
// One after the other, until one fails.
Result<void> RunSteps(Transaction& transaction, std::initializer_list<Step> steps);

// What a plan depends on has changed: generation + 1, planning is due.
Result<void> MarkChanged(Transaction& transaction, std::string_view job, Milliseconds now);
// Planning is due then, if not earlier.
Result<void> MakeDue(Transaction& transaction, std::string_view job, Milliseconds due);
// Keeps the plan, and gives up those that the header says nobody needs any more.
Result<PlanRecord> InsertPlan(Transaction& transaction, PlanRecord plan, Milliseconds now);

// `prefix` and 16 hexadecimal digits that nobody can guess.
std::string MakeId(std::string_view prefix);

// As a statement's LIMIT: PostgreSQL refuses negative ones, and to SQLite they are none.
inline std::int64_t AsLimit(int limit) { return std::max(limit, 0); }

}  // namespace perseus::store
