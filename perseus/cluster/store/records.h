// The records in the store, and the notices that replicas send each other.
//
// A body is a JSON text that the store does not read. A time is the time since 1970 on the caller's
// clock.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/cluster/store/planned_assignment.h"
#include "perseus/cluster/store/states.h"

namespace perseus::store {

struct JobRecord {
  std::string id;      // "j-" and 16 hexadecimal digits, chosen by the store.
  std::string key;     // The user's name of the job. Unique among the jobs that have not ended.
  std::string body;    // The job as it was registered.
  std::string target;  // The newest target.
  JobStatus status = JobStatus::kWaiting;
  std::string problem;  // Why planning failed. Empty if planning did not fail.
  Milliseconds created = 0;
  Milliseconds ended = 0;            // 0: the job has not ended.
  std::int64_t profile_version = 0;  // The version of the newest profile. 0: none.
  // Incremented by every change that a plan depends on: profile, target or stragglers.
  std::int64_t generation = 0;
  // The generation of the last planning. Planning is up to date if it equals `generation`.
  std::int64_t planned_generation = 0;
  // The version of the newest assignment. 0: none. The next assignment gets a higher version.
  std::int64_t assignment_version = 0;
  // The newest step in the reports of the nodes, and when it was reported.
  std::int64_t last_step = -1;
  Milliseconds last_step_at = 0;
  std::string summary;     // The time and energy of recent steps, as JSON. May be empty.
  std::string owner = {};  // The team or person that owns the job. Empty: no owner.
  friend bool operator==(const JobRecord&, const JobRecord&) = default;
};

struct NewJob {
  std::string key;
  std::string body;
  std::string target;
  std::string owner = {};
  // How many jobs may run after this job was added: in total, and of this owner. 0: no limit.
  int most_jobs = 0;
  int most_jobs_of_owner = 0;
};

struct ProfileRecord {
  std::int64_t version = 0;
  std::string csv;
};

struct PlanRecord {
  std::string id = {};  // "p-" and 16 hexadecimal digits.
  std::string job = {};
  std::string slug = {};  // Names the target: "no-slowdown", or "no-slowdown+straggler-1.25".
  std::int64_t profile_version = 0;
  std::string body;  // The plan file.
  Milliseconds created = 0;
  // The iteration time and the energy of one pipeline, with the plan and at maximum frequency. 0:
  // unknown, because an older program stored the plan.
  double time_s = 0;
  double energy_j = 0;
  double baseline_time_s = 0;
  double baseline_energy_j = 0;
  friend bool operator==(const PlanRecord&, const PlanRecord&) = default;
};

struct AssignmentRecord {
  std::string job;
  // Versions count from 1 in each job. Only RaiseAssignmentVersion skips numbers.
  std::int64_t version = 0;
  PlannedAssignment assignment;
  Milliseconds created = 0;
  friend bool operator==(const AssignmentRecord&, const AssignmentRecord&) = default;
};

// A node that has ranks of a job.
struct NodeRecord {
  std::string job;
  std::string node;
  std::string ranks;  // The ranks in the format of protocol::FormatRanks.
  // The version of the newest assignment that the node has received.
  std::int64_t acknowledged = 0;
  std::int64_t following = 0;    // The version that all its ranks follow.
  std::int64_t since_step = -1;  // The first step at which they all followed it.
  Milliseconds seen = 0;
  // When ranks on this node last ended a step. Before the first step: when they were attached.
  Milliseconds ran = 0;
  int running = -1;  // How many of the ranks run. -1: unknown, because the node is older.
  // How many ranks followed a plan without a lease of their GPU in their last step.
  int without_lease = 0;
  friend bool operator==(const NodeRecord&, const NodeRecord&) = default;
};

// The newest step of a job.
struct StepRecord {
  // Says when this record replaces the known step. kContinue: only if `step` is higher, or if `at`
  // is 60 s later. kRestart: always, because the job counts its steps from 0 again.
  enum class Counts { kContinue, kRestart };

  std::string job = {};
  Counts counts = Counts::kContinue;
  std::int64_t step = -1;
  std::string summary = {};
  Milliseconds at = 0;
};

// A process that claims the name of a node.
struct NodeClaim {
  std::string node;
  std::string instance;   // A unique id of the process.
  Milliseconds seen = 0;  // Only in a record that was read.
  friend bool operator==(const NodeClaim&, const NodeClaim&) = default;
};

// Says which nodes count as using their ranks. Such a node was seen since `silent_since`. It also
// attached ranks of the job or ended a step since `idle_since`. With the default values, no node
// counts.
struct InUse {
  Milliseconds silent_since = Milliseconds::Max();
  Milliseconds idle_since = 0;
};

// A rank that another node holds.
struct HeldRank {
  std::string node;
  int dp_rank = 0;
  int pp_rank = 0;
  int tp_rank = 0;
};

struct StragglerRecord {
  std::string job;
  int dp_rank = 0;
  // Each source has at most one record.
  StragglerSource source = StragglerSource::kReport;
  double slowdown = 1;  // The ratio T' / T, at least 1.
  Milliseconds starts = 0;
  Milliseconds expires = 0;  // 0: never.
  // The time since which measurements contradict the straggler, so that it does not count. 0: it
  // counts.
  Milliseconds suspended = 0;
  // The measured slowdown when `suspended` last changed. 0: none.
  double measured = 0;
  friend bool operator==(const StragglerRecord&, const StragglerRecord&) = default;
};

// A straggler that has ended, or a replaced value of a straggler.
struct PastStragglerRecord {
  int dp_rank = 0;
  StragglerSource source = StragglerSource::kReport;
  double slowdown = 1;
  Milliseconds starts = 0;
  Milliseconds ended = 0;
  double measured = 0;
  StragglerEnd why = StragglerEnd::kReplaced;
  friend bool operator==(const PastStragglerRecord&, const PastStragglerRecord&) = default;
};

// Whether measurements contradict the plans of a job (telemetry/plan_guard.h).
struct GuardRecord {
  std::string job = {};
  GuardState state = GuardState::kTrial;
  // The profile version and the target for which the guard holds.
  std::int64_t profile_version = 0;
  std::string target = {};
  // Medians of measured / promised step time: with the plans, and at the default clocks. 0:
  // unknown.
  double with_plan = 0;
  double without_plan = 0;
  double error = 0;        // The standard error of with_plan.
  Milliseconds since = 0;  // When this state began.
  std::string why = {};    // What the measurements show, as text.
  friend bool operator==(const GuardRecord&, const GuardRecord&) = default;
};

struct TokenRecord {
  std::string id = {};    // The id is public: lists and logs show it.
  std::string hash = {};  // SHA-256 of the secret, hexadecimal. The secret itself is not stored.
                          // Empty: the token has a client certificate instead.
  // Empty if only a newer version of the program knows the scope. The server refuses such a token,
  // but accepts other tokens.
  std::optional<Scope> scope = {};
  // For scope "job": the key of the only job. For other scopes: patterns of job keys, one per line.
  // Empty: all jobs.
  std::string job = {};
  std::string name = {};
  Milliseconds created = 0;
  Milliseconds expires = 0;  // 0: never.
  // For scopes "agent" and "join": patterns of node names, one per line. Empty: no node, but
  // `certificate` may name a node.
  std::string nodes = {};
  // The team or person for whose jobs the token is valid. Empty: all.
  std::string owner = {};
  // A pattern of common names of client certificates. Empty: none.
  std::string certificate = {};
  // The secret before the last renewal. The previous secret is valid until `previous_until`,
  // because the answer with the new secret may have been lost.
  std::string previous_hash = {};
  Milliseconds previous_until = 0;
  std::string issued_by = {};  // The id of the join token. Empty: a person created the token.
  friend bool operator==(const TokenRecord&, const TokenRecord&) = default;
};

constexpr std::string_view ScopeOf(const TokenRecord& token) {
  return token.scope ? Name(*token.scope) : "unknown";
}

// A planning that a worker has claimed. Other workers cannot take it until the claim expires.
struct PlanningTask {
  std::string job;
  std::string worker;  // A worker has at most one task.
  Milliseconds until = 0;
};

// The result of a planning. Without an assignment, the newest assignment stays active.
struct PlanningOutcome {
  std::int64_t generation = 0;  // The generation for which this planning was made.
  JobStatus status = JobStatus::kPlanned;
  std::string problem = {};
  // The frontier of the newest profile, as JSON.
  std::optional<std::string> frontier = {};
  // New plans. The store fills in an empty id and a zero time.
  std::vector<PlanRecord> plans = {};
  std::optional<PlannedAssignment> assignment = {};  // The assignment with the next version.
  // When planning is due again, for example because a straggler begins or ends.
  std::optional<Milliseconds> again_at = {};
};

// A rank of a client of Zeus' pipeline frequency optimizer.
struct ZeusRankRecord {
  std::int64_t ranks = 0;  // The number of ranks that the job has.
  // The body of the rank's request. Empty if the job does not have the rank.
  std::string body;
};

// The author of a change, for the audit trail. The default is the server itself.
struct Author {
  std::string id = {};             // The id of the author's token. Empty: none.
  std::string name = {};           // The name of the token or of the person.
  std::optional<Scope> role = {};  // Empty: the server itself.
  std::string peer = {};           // The client's address.
  std::string trace = {};          // The trace id of the request.
  std::string reason = {};         // The reason that the author gave.
  friend bool operator==(const Author&, const Author&) = default;
};

inline constexpr std::string_view kServerRole = "server";
constexpr std::string_view RoleOf(const Author& author) {
  return author.role ? Name(*author.role) : kServerRole;
}

// A record of one change (audit.h).
struct AuditRecord {
  std::int64_t number = 0;  // Numbers count from 1, without gaps.
  Milliseconds at = 0;
  // Such as "job.target" or "straggler.put". docs/identity.md lists all actions.
  std::string action = {};
  std::string job = {};      // The id of the job. Empty: none.
  std::string key = {};      // The key of the job.
  std::string subject = {};  // The part of the job, or the token: "pipeline 1", "t-1f2e3d4c".
  Author by = {};
  std::string before = {};  // The old value as JSON. Empty: no value existed.
  std::string after = {};   // The new value as JSON. Empty: the value was deleted.
  friend bool operator==(const AuditRecord&, const AuditRecord&) = default;
};

// Says which records to list. An empty text selects all records.
struct AuditFilter {
  std::int64_t after = 0;  // Lists only records with higher numbers.
  std::int64_t before = std::numeric_limits<std::int64_t>::max();
  std::string job = {};     // The id or the key of the job.
  std::string who = {};     // The id or the name of the author.
  std::string action = {};  // Such as "job.target". "job" selects all actions of jobs.
  Milliseconds since = 0;
  bool newest_first = false;
  int limit = 100;
};

// Replicas send each other notices through the database. A notice is a hint to read something
// again. The receiver must not depend on notices, because they may be lost.
struct Notice {
  enum class Kind {
    kAssignment,  // Job `name` has a new assignment.
    kNode,        // Node `name` has a different set of jobs.
    kPlanning,    // Planning is due.
    kTokens,      // The tokens have changed.
    // Steps that a replica received, for the replica that judges the job. `name` contains the steps
    // as text.
    kSteps,
    kReadAgain,  // Notices may be lost: read everything again. The store itself makes this notice.
  };
  Kind kind = Kind::kReadAgain;
  std::string name = {};
  friend bool operator==(const Notice&, const Notice&) = default;
};

}  // namespace perseus::store
