// The durable state of the server: jobs, profiles, plans, assignments, nodes, stragglers, tokens,
// and the planning that is due.
//
//   auto store = OpenStore("sqlite:perseus.db");           or "postgresql://…"
//   auto job = store->CreateJob({.key = "gpt3", .body = …}, now);
//
// The store has one set of SQL statements. They run on a small database interface (database.h),
// which has two drivers, SQLite and PostgreSQL.
//
// Guarantees:
//   1. If a call returns success, its changes are on disk. Acknowledge, RecordSteps and
//      NotifyReplicas are the exception, because nodes send the same data again. Their changes
//      survive a crash of the server, but perhaps not a crash of the database's machine (Durability
//      in database.h).
//   2. Each call is one transaction: it makes all of its changes, or none.
//   3. A change that other replicas cache or send to nodes comes with a Notice in the same
//      transaction. So the notice arrives only after the change is visible. If the transaction
//      fails, no notice is sent. If a replica loses its connection, it receives kReadAgain.
//
// Texts are UTF-8 without NUL bytes, at most 500 MB. The store refuses other texts (kInput). Times
// are milliseconds since 1970 on the caller's clock. `job` is the id of a job.
//
// Each change by people or nodes, and each new assignment, is recorded in the audit trail, with its
// author in `by` (audit.h).
//
// Errors: a call fails with kSystem if the database is unavailable. Then nothing was written, with
// one exception: if PostgreSQL fails during a commit, the whole transaction may be written. A call
// that changes a job fails with kInput if the job does not exist or has ended. The comment of a
// function names exceptions.
//
// Limits: the store keeps the newest profile and the newest 50 assignments of each job. It keeps
// the newest 200 plans of each job, and all plans that a kept assignment names. (The body of an
// assignment contains the ids of its plans.) Prune deletes ended jobs and old claims of nodes.
//
// Thread safe. Calls block.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/store/records.h"

namespace perseus::store {

class Database;

class Store final {
 public:
  explicit Store(std::unique_ptr<Database> database);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // --- Jobs.

  struct Created {
    JobRecord job;
    bool is_new = false;  // false: `job` has this key, existed before and has not ended.
  };
  // Creates a job, or finds the running job with this key. Fails (kUnreachable) if one more job
  // would exceed the limits in `job`. The limits do not apply to a job that exists.
  Result<Created> CreateJob(const NewJob& job, Milliseconds now, const Author& by = {});

  // Finds a job by id or by key. If several jobs have the key, finds the job that has not ended. If
  // all have ended, finds the newest job.
  Result<std::optional<JobRecord>> FindJob(std::string_view id_or_key);

  // Lists jobs in order of creation, after the job with id `after` (empty: from the first). Fails
  // (kInput) if that job no longer exists.
  enum class Which { kRunning, kAll };
  Result<std::vector<JobRecord>> ListJobs(Which which, std::string_view after, int limit);

  // Ends the job. Deletes the job's stragglers, nodes and planning, and sends a notice for each of
  // these nodes. Does nothing if the job has already ended.
  Result<void> EndJob(std::string_view job, Milliseconds now, const Author& by = {});

  // Sets a new target, increments the generation and makes planning due.
  Result<void> SetTarget(std::string_view job, std::string_view target, Milliseconds now,
                         const Author& by = {});
  // The same, if the target of the job is `before`. Otherwise returns false and changes nothing.
  Result<bool> ReplaceTarget(std::string_view job, std::string_view before, std::string_view target,
                             Milliseconds now, const Author& by = {});

  // Records the newest steps of jobs, at most one for each job. Does nothing for a job that does
  // not exist or has ended. A restart is on disk when this call returns.
  Result<void> RecordSteps(std::vector<StepRecord> steps);

  // Deletes at most `limit` jobs that ended before `before`, with everything that belongs to them.
  // Also deletes the node claims that were last renewed before `before`, and the node tokens that
  // expired before `before`. Returns the number of deleted jobs.
  Result<int> Prune(Milliseconds before, int limit);

  // --- Profiles.

  // Stores a profile, increments the generation and makes planning due. If the newest profile has
  // the same text, changes nothing. Returns the version of the profile.
  Result<std::int64_t> PutProfile(std::string_view job, std::string_view csv, Milliseconds now,
                                  const Author& by = {});

  // Finds the newest profile.
  Result<std::optional<ProfileRecord>> FindProfile(std::string_view job);

  // --- Planning.

  // Claims the job whose planning has been due the longest, if any, for `duration`. Two workers
  // never claim the same job.
  Result<std::optional<PlanningTask>> ClaimPlanning(std::string_view worker, Milliseconds now,
                                                    Milliseconds duration);

  // Returns the next time at which ClaimPlanning can return a task, because planning becomes due or
  // a claim expires. Returns nullopt if no planning is pending.
  Result<std::optional<Milliseconds>> NextPlanningTime();

  // The plannings that are due and wait for a worker. No worker has claimed them, or the claim has
  // expired because the worker died.
  struct PlanningBacklog {
    std::int64_t jobs = 0;
    Milliseconds oldest_due = 0;
  };
  Result<PlanningBacklog> ReadPlanningBacklog(Milliseconds now);

  // Extends the claim to `duration` from now. Returns false if another worker has the task or the
  // job has ended.
  Result<bool> RenewPlanning(const PlanningTask& task, Milliseconds now, Milliseconds duration);

  // Releases the claim without a result. Planning is due at `due`, or earlier if planning was
  // requested in the meantime. Does nothing if the worker no longer has the task.
  Result<void> ReleasePlanning(const PlanningTask& task, Milliseconds due);

  // Stores the result of a planning. Returns false and stores nothing if the worker no longer has
  // the task. Planning stays due if it was requested in the meantime, or if the generation of the
  // job has changed. If the generation has changed, the frontier is not stored, because it may
  // belong to an older profile.
  Result<bool> CompletePlanning(const PlanningTask& task, const PlanningOutcome& outcome,
                                Milliseconds now);

  // Makes planning due at `due`, unless it is due earlier. Does nothing if the job has ended.
  Result<void> RequestPlanning(std::string_view job, Milliseconds due);

  // --- Frontier, plans and assignments.

  Result<std::optional<std::string>> FindFrontier(std::string_view job);

  // Finds the newest plan with this slug, among the plans for the job's newest profile.
  Result<std::optional<PlanRecord>> FindPlan(std::string_view job, std::string_view slug);
  Result<std::optional<PlanRecord>> FindPlanById(std::string_view id);

  // Lists plans, newest first, without bodies.
  Result<std::vector<PlanRecord>> ListPlans(std::string_view job, int limit);

  // Adds a plan, even to a job that has ended. The store fills in an empty id and a zero time.
  // Fails (kInput) if a plan with this id exists.
  Result<PlanRecord> AddPlan(PlanRecord plan, Milliseconds now);

  // Finds the newest assignment. Ignores versions above `newest`. If `newest` is the
  // assignment_version of a JobRecord that was read earlier, the assignment belongs to this record.
  Result<std::optional<AssignmentRecord>> FindNewestAssignment(
      std::string_view job, std::int64_t newest = std::numeric_limits<std::int64_t>::max());

  // Lists assignments, newest first.
  Result<std::vector<AssignmentRecord>> ListAssignments(std::string_view job, int limit);

  // Makes the job's assignments newer than `version`. A node has this version if the database was
  // restored from an old backup. Without this call, the node would ignore newer assignments with
  // lower versions. The newest assignment is stored again as `version` + 1. If the job has no
  // assignment, its first assignment will have version `version` + 1. Does nothing if the job's
  // version is already `version` or higher. Also does nothing if the job does not exist or has
  // ended. Fails (kInput) if `version` is above 10^12.
  Result<void> RaiseAssignmentVersion(std::string_view job, std::int64_t version, Milliseconds now);

  // --- Guards of plans.

  // Finds the guard of the job's current profile and target. Returns nullopt if no guard exists, or
  // if it belongs to another profile or target.
  Result<std::optional<GuardRecord>> FindGuard(const JobRecord& job);
  // Replaces the guard of a running job, increments the generation and makes planning due. Returns
  // false and changes nothing if the profile or the target of the job has changed in the meantime.
  // The same holds if the state of the guard is not `before` (empty: no guard exists).
  Result<bool> PutGuard(const GuardRecord& guard, std::optional<GuardState> before,
                        Milliseconds now);

  // --- Nodes.

  // Attaches a node with its ranks (protocol::FormatRanks). Fails (kInput) if the text is
  // malformed. Other nodes lose these ranks. A node that loses its last rank is detached. Keeps the
  // version that the node has acknowledged. Sends notices only to nodes whose ranks changed.
  // Returns the ranks that other nodes use. If other nodes use some of the ranks, the node gets no
  // new rank, and loses its ranks that are not in `ranks`. So two nodes that exchange ranks do not
  // wait for each other forever.
  Result<std::vector<HeldRank>> AttachNode(std::string_view job, std::string_view node,
                                           std::string_view ranks, Milliseconds now,
                                           const InUse& in_use = {}, const Author& by = {});
  Result<void> DetachNode(std::string_view job, std::string_view node);
  Result<std::vector<NodeRecord>> ListNodesOfJob(std::string_view job);
  Result<std::vector<NodeRecord>> ListJobsOfNode(std::string_view node);

  // Lists the nodes that are connected or have ranks of a job, sorted by name, without their
  // instances. `seen` is 0 if no process has the name.
  Result<std::vector<NodeClaim>> ListNodes(std::string_view after, int limit);

  // Claims names of nodes for processes. Each name occurs at most once in `claims`. A claim fails
  // if another process has the name and has renewed its own claim since `silent_since`. Returns the
  // names whose claim failed.
  Result<std::vector<std::string>> ClaimNodes(std::vector<NodeClaim> claims, Milliseconds now,
                                              Milliseconds silent_since);

  // Releases the name. Does nothing if another process now has it.
  Result<void> ReleaseNode(const NodeClaim& claim);

  // Records the versions that nodes have acknowledged and follow, and when the nodes were seen.
  // `acknowledged` never decreases. `ranks` is ignored. Ignores nodes that are not attached.
  Result<void> Acknowledge(std::vector<NodeRecord> nodes);

  // --- Stragglers.

  // Replaces the straggler with the same dp_rank and source, increments the generation and makes
  // planning due. The replaced straggler goes into the history. If the new record only extends an
  // active straggler, only the end changes, and a suspended straggler stays suspended. Fails
  // (kInput) if the slowdown is not a number or below 1.
  //
  // Damping: planning is due later if reports and forecasts of this pipeline change repeatedly
  // (stragglers.cc). For detected stragglers, the detector does the damping.
  Result<void> PutStraggler(const StragglerRecord& straggler, Milliseconds now,
                            const Author& by = {});

  // Deletes the straggler. Returns whether the straggler existed. If so, increments the generation
  // and makes planning due.
  Result<bool> DeleteStraggler(std::string_view job, int dp_rank, StragglerSource source,
                               Milliseconds now, const Author& by = {});
  // Suspends or reinstates a straggler, increments the generation and makes planning due. Does
  // nothing if the straggler does not exist or is already in this state.
  Result<void> MarkStraggler(const StragglerRecord& straggler, Milliseconds now);
  Result<std::vector<StragglerRecord>> ListStragglers(std::string_view job);
  // Lists ended stragglers, newest first. The store keeps the newest kMaxPastStragglers of a job.
  static constexpr int kMaxPastStragglers = 100;
  Result<std::vector<PastStragglerRecord>> ListPastStragglers(std::string_view job, int limit);

  // --- Tokens.

  // Adds a token. Fails (kInput) if a token with this id exists.
  Result<void> AddToken(const TokenRecord& token, const Author& by = {});

  // Adds the token that a node got with a join token. The new token replaces the token that an
  // earlier request of the same attempt got (own_token.h). `previous_hash` is the hash of the
  // attempt. `previous_until` is 0, so that no request can use the attempt as a secret. If
  // `is_only_for_new_names` is set and the node already has a token, returns that token and adds
  // none. At most kMostTokensOfNode tokens stay valid for one name, and the oldest tokens are
  // revoked. If two joins run at the same time, the second join sees the result of the first one.
  static constexpr std::size_t kMostTokensOfNode = 4;
  Result<std::optional<TokenRecord>> JoinNode(const TokenRecord& token, bool is_only_for_new_names,
                                              const Author& by = {});

  // Deletes a token, and returns whether it existed. Fails (kUnreachable) for the last operator
  // token that never expires, because without this token nobody could create tokens.
  Result<bool> DeleteToken(std::string_view id, Milliseconds now = 0, const Author& by = {});
  Result<std::vector<TokenRecord>> ListTokens();
  // Lists the tokens of scope agent that are only for this node.
  Result<std::vector<TokenRecord>> ListTokensOfNode(std::string_view node);

  // Gives the token a new secret and a new end, if `presented` is the hash of its current or
  // previous secret. The presented secret stays valid until `previous_until`, or until its own end
  // if its end is earlier. Returns false and changes nothing if the token does not exist or has
  // another secret.
  Result<bool> RenewToken(const TokenRecord& renewed, std::string_view presented, Milliseconds now,
                          const Author& by = {});

  // --- The audit trail (audit.h).

  Result<std::vector<AuditRecord>> ListAudit(const AuditFilter& filter);

  // --- Clients of Zeus' pipeline frequency optimizer.

  // Stores or replaces a rank. `position` is a number for (dp_rank, pp_rank, tp_rank). Returns
  // false and changes nothing if another rank of the job has this position.
  Result<bool> PutZeusRank(std::string_view job, int rank, int position, std::string_view body);
  Result<ZeusRankRecord> FindZeusRank(std::string_view job, int rank);
  Result<void> ClearZeusRanks(std::string_view job);

  // --- The database and its replicas.

  // Succeeds if the database answers.
  Result<void> Ping();
  // Succeeds if the database accepts a change.
  Result<void> PingWrite(Milliseconds now);
  // The number of transactions that failed because the database was unavailable or full.
  std::int64_t failed_writes() const;
  // Reads the database's clock. Returns nullopt if only this process uses the database.
  Result<std::optional<Milliseconds>> Clock();

  // Whether other processes may use the same database.
  bool has_replicas() const;

  // Sends each text (at most kMaxReplicaTextBytes) as a kSteps notice. The texts are not stored, so
  // a replica that is not connected now does not receive them.
  static constexpr std::size_t kMaxReplicaTextBytes = 7'000;
  Result<void> NotifyReplicas(const std::vector<std::string>& texts);

  // Calls `receive` for every notice that this or another process sends after this call returns.
  // The calls come one at a time on a thread of the store, until the store is destroyed. `receive`
  // may use the store. Fails (kInput) if Listen was called before.
  Result<void> Listen(std::function<void(const Notice&)> receive);

 private:
  const std::unique_ptr<Database> database_;
};

// Opens the database at an address, and creates the tables. The address is "sqlite:PATH",
// "sqlite::memory:", or "postgresql://…" as libpq accepts it. PATH is created if it does not exist,
// and only one process can use it at a time. Fails (kInput) for any other address. Fails (kInput)
// also if the tables belong to another version of this program.
Result<std::unique_ptr<Store>> OpenStore(const std::string& address);

}  // namespace perseus::store
