// What the server knows and must not lose: jobs, profiles, plans, assignment, nodes, stragglers,
// tokens, and the planning that is still to be done.
//
//   auto store = OpenStore("sqlite:perseus.db");           or "postgresql://…"
//   auto job = store->CreateJob({.key = "gpt3", .body = …}, now);
//
// One set of statements over one small interface to a database (database.h), with a driver each for
// SQLite and PostgreSQL: both run the same SQL but for what database.h names.
//
// What a call returned as done is on disk. Each call is one transaction: all of it or nothing.
// Nothing here waits for another replica but the database itself.
//
// Replicas tell each other through the database (PostgreSQL: NOTIFY): whoever changes what others
// push or cache sends a Notice in the same transaction, so that it arrives after the change is
// visible and never without it. A notice is a hint to look again; whoever lost his connection gets
// kLookAgain and reads all.
//
// Bodies are JSON texts that this room does not read, but for nodes' ranks. Texts are UTF-8 without
// NUL bytes, of 500 MB at most; others are refused (kInput). Times are milliseconds since 1970 (the
// caller's clock). `job` is a job's id.
//
// Errors are kSystem (the database is away, and nothing was written; only if PostgreSQL goes in the
// very moment of a commit may all of it have been) or what a function names. What changes a job
// fails with kInput if there is none that has not ended, unless it says otherwise.
//
// What does not grow for ever: claims of nodes, until Prune; of a profile the newest is kept; of a
// job's assignment the newest 50; of its plans the newest 200 and those that these assignment name
// (whose ids stand in their bodies); of a job's measurements that are no profile yet kMostMeasured
// bytes; of jobs that ended all, until Prune.
//
// Thread safe; calls block.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"

namespace perseus::store {

using Milliseconds = std::int64_t;  // Since 1970.

// A job and what was last asked of it.
struct JobRecord {
  std::string id;       // "j-" and 16 hexadecimal digits; the store's.
  std::string key;      // The user's, unique among jobs that have not ended.
  std::string body;     // As registered.
  std::string target;   // As set last.
  std::string status;   // What planning came to: "waiting", "planned", "failed".
  std::string problem;  // Why it failed; else empty.
  Milliseconds created = 0;
  Milliseconds ended = 0;            // 0: it has not.
  std::int64_t profile_version = 0;  // Of the newest profile; 0: none.
  // Counts whatever a plan depends on: profile, target, stragglers. Planned when `planned` is
  // equal.
  std::int64_t generation = 0;
  std::int64_t planned = 0;
  std::int64_t assignment_version = 0;  // Of the newest assignment; 0: none. The next is above it.
  // What nodes reported last, at most as old as the reports are apart.
  std::int64_t last_step = -1;
  Milliseconds last_step_at = 0;
  std::string summary;  // Of what steps take and cost; JSON, or empty.
  friend bool operator==(const JobRecord&, const JobRecord&) = default;
};

struct NewJob {
  std::string key;
  std::string body;
  std::string target;
};

struct PlanRecord {
  std::string id;  // "p-" and 16 hexadecimal digits; the store's.
  std::string job;
  std::string slug;  // Of its target: "no-slowdown"; of a straggler's: "straggler-1.25".
  std::int64_t profile_version = 0;
  std::string body;  // The plan file.
  Milliseconds created = 0;
  friend bool operator==(const PlanRecord&, const PlanRecord&) = default;
};

struct AssignmentRecord {
  std::string job;
  std::int64_t version = 0;  // From 1 in each job, without gaps but for RaiseAssignmentVersion.
  std::string body;
  Milliseconds created = 0;
  friend bool operator==(const AssignmentRecord&, const AssignmentRecord&) = default;
};

// A node with ranks of a job.
struct NodeRecord {
  std::string job;
  std::string node;
  std::string ranks;              // JSON: a list, of what is equal but for the key "gpu".
  std::int64_t acknowledged = 0;  // The newest assignment that it has received,
  std::int64_t following = 0;     // and those that all its ranks follow,
  std::int64_t since_step = -1;   // from this step on.
  Milliseconds seen = 0;
  friend bool operator==(const NodeRecord&, const NodeRecord&) = default;
};

// A process that says it is a node.
struct NodeClaim {
  std::string node;
  std::string instance;  // Of the process; no other has the same.
  friend bool operator==(const NodeClaim&, const NodeClaim&) = default;
};

struct StragglerRecord {
  std::string job;
  int pipeline = 0;
  std::string source;   // "report", "detected" or "forecast": each may say one thing.
  double slowdown = 1;  // >= 1; T' / T.
  Milliseconds starts = 0;
  Milliseconds expires = 0;  // 0: never.
  friend bool operator==(const StragglerRecord&, const StragglerRecord&) = default;
};

struct TokenRecord {
  std::string id;     // Public: in lists and logs.
  std::string hash;   // SHA-256 of the secret, hexadecimal. The secret is nowhere.
  std::string scope;  // "operator", "agent", "job", "read".
  std::string job;    // Of scope "job": the key of the only job that it is good for.
  std::string name;
  Milliseconds created = 0;
  Milliseconds expires = 0;  // 0: never.
  friend bool operator==(const TokenRecord&, const TokenRecord&) = default;
};

// Planning that a worker has taken on. Others leave it alone until `until`, or longer if he renews
// it.
struct PlanningTask {
  std::string job;
  std::string worker;  // One that has no other task.
  Milliseconds until = 0;
  // Something changed that no planning has answered yet, so nodes wait for it. False: a second look
  // at the same, or a straggler that was announced.
  bool is_awaited = true;
};

// What planning came to. Without assignment, those in force stay.
struct PlanningOutcome {
  std::int64_t generation = 0;  // What it answers.
  std::string status = "planned";
  std::string problem = {};
  std::optional<std::string> frontier = {};  // JSON; of the job's newest profile.
  std::vector<PlanRecord> plans = {};        // New ones; id and time are the store's unless given.
  std::optional<std::string> assignment = {};  // Body of the next version.
  // Body of the newest version, in place of what it had: it asks nothing else of any rank, so
  // nobody is told. Not with `assignment`.
  std::optional<std::string> amended_assignment = {};
  // Plans that are there already, by id, and the slugs that they have from now on.
  std::map<std::string, std::string> renamed_plans = {};
  std::optional<Milliseconds> again_at =
      {};  // When planning is due next (a straggler begins or ends).
};

struct Notice {
  enum class Kind {
    kAssignment,  // New assignment for job `name`.
    kNode,        // Node `name` has another set of jobs.
    kPlanning,    // There is planning to do.
    kTokens,      // Tokens have changed.
    kHeard,  // What a replica heard of a job's steps, for the one that judges them: `name`, a text.
    kLookAgain,  // Notices may have been lost: read everything again. Nobody sends it.
  };
  Kind kind = Kind::kLookAgain;
  std::string name;
  friend bool operator==(const Notice&, const Notice&) = default;
};

class Store {
 public:
  virtual ~Store() = default;

  // --- jobs
  struct Created {
    JobRecord job;
    bool is_new = false;  // false: the job of that key that has not ended, as it is.
  };
  virtual Result<Created> CreateJob(const NewJob& job, Milliseconds now) = 0;
  // By id, or by key: of those with that key the one that has not ended, else the newest.
  virtual Result<std::optional<JobRecord>> FindJob(std::string_view id_or_key) = 0;
  // In order of creation, after `after` (an id; empty: from the first). kInput if that is gone.
  enum class Which { kRunning, kAll };
  virtual Result<std::vector<JobRecord>> ListJobs(Which which, std::string_view after,
                                                  int limit) = 0;
  // Nothing if it has ended already. Its stragglers, nodes and planning go; the nodes get a notice
  // each.
  virtual Result<void> EndJob(std::string_view job, Milliseconds now) = 0;
  // A new target: generation + 1, planning is due.
  virtual Result<void> SetTarget(std::string_view job, std::string_view target,
                                 Milliseconds now) = 0;
  // kOn: only if `step` is higher than the one known, or `at` 60 s later than it. kAnew: whatever
  // is known, and whenever that was said, since the job counts anew. Nothing for a job that is
  // unknown or has ended.
  enum class Steps { kOn, kAnew };
  virtual Result<void> Heartbeat(std::string_view job, Steps steps, std::int64_t step,
                                 std::string_view summary, Milliseconds at) = 0;
  // Deletes jobs that ended before `before`, with all that is theirs; at most `limit`. How many.
  // And claims of nodes that were not seen since.
  virtual Result<int> Prune(Milliseconds before, int limit) = 0;

  // --- profiles
  // Generation + 1, planning is due, unless the newest profile is the same: then nothing changes.
  // The version. Measurements up to the one of that number (Measured::last) are in it now, and go;
  // those that were added since stay.
  static constexpr std::int64_t kAllMeasurements = std::numeric_limits<std::int64_t>::max();
  virtual Result<std::int64_t> PutProfile(std::string_view job, std::string_view csv,
                                          Milliseconds now,
                                          std::int64_t measured_to = kAllMeasurements) = 0;
  // The newest; nothing if there is none.
  struct Profile {
    std::int64_t version = 0;
    std::string csv;
  };
  virtual Result<std::optional<Profile>> FindProfile(std::string_view job) = 0;
  // Measurements that are not a profile yet: JSON rows as they came, in order. False: with them
  // there would be too many, and they are not kept.
  static constexpr std::int64_t kMostMeasured = 32'000'000;  // Bytes: more than 100,000 rows.
  virtual Result<bool> AddMeasurements(std::string_view job, std::string_view rows,
                                       Milliseconds now) = 0;
  struct Measured {
    std::vector<std::string> rows;
    std::int64_t last = 0;  // The newest one's number.
  };
  virtual Result<Measured> Measurements(std::string_view job) = 0;

  // --- planning
  // The job that is due longest, if any, for `for_ms`; first those that are awaited. Two workers
  // never have the same.
  virtual Result<std::optional<PlanningTask>> ClaimPlanning(std::string_view worker,
                                                            Milliseconds now,
                                                            Milliseconds for_ms) = 0;
  // When ClaimPlanning has something next: planning is due, or a worker's time with it is up.
  // Nothing if there is no planning to do.
  virtual Result<std::optional<Milliseconds>> NextPlanning() = 0;
  // For `for_ms` from now. False: another worker has it, or the job has ended.
  virtual Result<bool> RenewPlanning(const PlanningTask& task, Milliseconds now,
                                     Milliseconds for_ms) = 0;
  // Undone: anybody may take it on from `due` on, or from when it was wanted meanwhile. Nothing if
  // the worker has it no more.
  virtual Result<void> ReleasePlanning(const PlanningTask& task, Milliseconds due) = 0;
  // Whether the task is due again already, since something changed after it was taken on.
  virtual Result<bool> IsWantedAgain(const PlanningTask& task, Milliseconds now) = 0;
  // Whether ClaimPlanning has one that is awaited.
  virtual Result<bool> IsPlanningAwaited(Milliseconds now) = 0;
  // Keeps what it came to, if the worker still has the task: otherwise false, and nothing is kept.
  // If the job's generation has moved on, planning stays due, and the frontier is not kept (it may
  // be of an older profile). It stays due, too, if it was wanted meanwhile.
  virtual Result<bool> CompletePlanning(const PlanningTask& task, const PlanningOutcome& outcome,
                                        Milliseconds now) = 0;
  // Planning is due at that time, if not earlier already. Nothing if the job has ended.
  virtual Result<void> WantPlanning(std::string_view job, Milliseconds due) = 0;

  // --- plans
  virtual Result<std::optional<std::string>> FindFrontier(std::string_view job) = 0;
  // Of the newest profile.
  virtual Result<std::optional<PlanRecord>> FindPlan(std::string_view job,
                                                     std::string_view slug) = 0;
  virtual Result<std::optional<PlanRecord>> FindPlanById(std::string_view id) = 0;
  // Without bodies, newest first.
  virtual Result<std::vector<PlanRecord>> ListPlans(std::string_view job, int limit) = 0;
  // Id and time are the store's unless given; kInput if there is a plan of that id. Of a job that
  // has ended, too.
  virtual Result<PlanRecord> AddPlan(PlanRecord plan, Milliseconds now) = 0;

  // --- assignment
  virtual Result<std::optional<AssignmentRecord>> NewestAssignment(std::string_view job) = 0;
  virtual Result<std::vector<AssignmentRecord>> ListAssignments(std::string_view job,
                                                                int limit) = 0;
  // Somebody has version `version` of the job's assignment, of a database that this one was once:
  // it has been restored from a backup. So that nobody passes over what is newer, the newest
  // assignment are given once more, as version + 1; where there are none, the first will be that.
  // Nothing if the job is as far, is unknown or has ended. kInput beyond 10^12, which no job came
  // to.
  virtual Result<void> RaiseAssignmentVersion(std::string_view job, std::int64_t version,
                                              Milliseconds now) = 0;

  // --- nodes
  // Its ranks, from now on, and no other node's any more: one that has none left is detached. What
  // it acknowledged stays. Notices only where ranks are others than before.
  virtual Result<void> AttachNode(std::string_view job, std::string_view node,
                                  std::string_view ranks, Milliseconds now) = 0;
  virtual Result<void> DetachNode(std::string_view job, std::string_view node) = 0;
  virtual Result<std::vector<NodeRecord>> NodesOf(std::string_view job) = 0;
  // How many of them were seen last before `time`.
  virtual Result<std::int64_t> CountNodesSilentSince(std::string_view job, Milliseconds time) = 0;
  virtual Result<std::vector<NodeRecord>> JobsOf(std::string_view node) = 0;
  // Each name is its claimant's from now on, unless another has it that was seen since
  // `silent_since`; the nodes that are so. No two claims of one node.
  virtual Result<std::vector<std::string>> ClaimNodes(const std::vector<NodeClaim>& claims,
                                                      Milliseconds now,
                                                      Milliseconds silent_since) = 0;
  // Nothing if another has it by now.
  virtual Result<void> ReleaseNode(const NodeClaim& claim) = 0;
  // Never backwards in `acknowledged`. `ranks` stay. Nothing of those that are not attached.
  virtual Result<void> Acknowledge(const std::vector<NodeRecord>& nodes) = 0;

  // --- stragglers
  // Replaces what that source said of that pipeline: generation + 1, planning is due; but where it
  // says again what holds already, only the end is put off. kInput if the slowdown is below 1 or no
  // number.
  virtual Result<void> PutStraggler(const StragglerRecord& straggler, Milliseconds now) = 0;
  // Whether there was one; then generation + 1, and planning is due.
  virtual Result<bool> DeleteStraggler(std::string_view job, int pipeline, std::string_view source,
                                       Milliseconds now) = 0;
  virtual Result<std::vector<StragglerRecord>> Stragglers(std::string_view job) = 0;

  // --- tokens
  // kInput if there is one of that id.
  virtual Result<void> AddToken(const TokenRecord& token) = 0;
  virtual Result<bool> DeleteToken(std::string_view id) = 0;  // kUnreachable: see tokens.cc.
  virtual Result<std::vector<TokenRecord>> Tokens() = 0;

  // --- clients of Zeus' pipeline frequency optimizer
  // In place of what it was before. `place`: where it stands, a number that no other rank of the
  // job has. False: another has it, and nothing is changed.
  virtual Result<bool> PutRank(std::string_view job, int rank, int place,
                               std::string_view body) = 0;
  virtual Result<void> ClearRanks(std::string_view job) = 0;
  struct Registered {
    std::int64_t ranks = 0;  // How many the job has.
    std::string body;        // Of the one that was asked for; empty: it is not there.
  };
  virtual Result<Registered> FindRank(std::string_view job, int rank) = 0;

  // --- the database itself
  // Whether it answers.
  virtual Result<void> Ping() = 0;
  // Whether other processes may work with the same database.
  virtual bool has_replicas() const = 0;
  // Sends texts of at most kMostHeard bytes as notices, kHeard. Nothing is written; a replica that
  // is not connected just then does not hear them.
  static constexpr std::size_t kMostHeard = 7'000;
  virtual Result<void> TellReplicas(const std::vector<std::string>& texts) = 0;
  // Calls `heard` for every notice sent after this returns, by this process or another, on a thread
  // of the store's, one at a time; until the store goes. Once only (kInput). `heard` may
  // use the store.
  virtual Result<void> Listen(std::function<void(const Notice&)> heard) = 0;
};

// "sqlite:PATH" (made if it is not there; one process at a time), "sqlite::memory:", or
// "postgresql://…" as libpq takes it. Brings the tables up to date; refuses (kInput) those of a
// newer program, and an address that is neither.
Result<std::unique_ptr<Store>> OpenStore(const std::string& address);

}  // namespace perseus::store
