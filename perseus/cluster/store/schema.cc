#include "perseus/cluster/store/schema.h"

#include <iterator>
#include <span>
#include <string>
#include <string_view>

namespace perseus::store {
namespace {

// The placeholder for the type of a key that increments itself, which depends on the database.
constexpr std::string_view kSerialKey = "{serial key}";

// The tables of version 1. Rows that belong to a job are deleted with it (ON DELETE CASCADE).
// Serial keys record the order of creation.
constexpr std::string_view kVersion1[] = {
    R"(CREATE TABLE jobs (
      number {serial key},
      id TEXT NOT NULL UNIQUE,
      key TEXT NOT NULL,
      body TEXT NOT NULL,
      target TEXT NOT NULL,
      status TEXT NOT NULL DEFAULT 'waiting',
      problem TEXT NOT NULL DEFAULT '',
      created BIGINT NOT NULL,
      ended BIGINT NOT NULL DEFAULT 0,
      profile_version BIGINT NOT NULL DEFAULT 0,
      generation BIGINT NOT NULL DEFAULT 0,
      planned_generation BIGINT NOT NULL DEFAULT 0,
      assignment_version BIGINT NOT NULL DEFAULT 0,
      last_step BIGINT NOT NULL DEFAULT -1,
      last_step_at BIGINT NOT NULL DEFAULT 0,
      summary TEXT NOT NULL DEFAULT '',
      measurement_bytes BIGINT NOT NULL DEFAULT 0))",
    "CREATE UNIQUE INDEX jobs_running_key ON jobs (key) WHERE ended = 0",
    "CREATE INDEX jobs_key ON jobs (key)",
    "CREATE INDEX jobs_ended ON jobs (ended)",
    // The newest profile of each job. Older profiles are not kept.
    R"(CREATE TABLE profiles (
      job TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
      csv TEXT NOT NULL))",
    R"(CREATE TABLE measurements (
      number {serial key},
      job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
      body TEXT NOT NULL,
      created BIGINT NOT NULL))",
    "CREATE INDEX measurements_job ON measurements (job, number)",
    // Planning is due at `due`. If a worker has claimed the planning, the claim expires at `until`.
    // Requests that arrive in the meantime set `due`.
    R"(CREATE TABLE planning (
      job TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
      due BIGINT NOT NULL,
      worker TEXT NOT NULL DEFAULT '',
      until BIGINT NOT NULL DEFAULT 0))",
    R"(CREATE TABLE frontiers (
      job TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
      profile_version BIGINT NOT NULL,
      body TEXT NOT NULL))",
    R"(CREATE TABLE plans (
      number {serial key},
      id TEXT NOT NULL UNIQUE,
      job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
      slug TEXT NOT NULL,
      profile_version BIGINT NOT NULL,
      body TEXT NOT NULL,
      created BIGINT NOT NULL))",
    "CREATE INDEX plans_job ON plans (job, number)",
    R"(CREATE TABLE assignments (
      job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
      version BIGINT NOT NULL,
      body TEXT NOT NULL,
      created BIGINT NOT NULL,
      PRIMARY KEY (job, version)))",
    R"(CREATE TABLE nodes (
      job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
      node TEXT NOT NULL,
      ranks TEXT NOT NULL,
      acknowledged BIGINT NOT NULL DEFAULT 0,
      following BIGINT NOT NULL DEFAULT 0,
      since_step BIGINT NOT NULL DEFAULT -1,
      seen BIGINT NOT NULL,
      PRIMARY KEY (job, node)))",
    "CREATE INDEX nodes_node ON nodes (node)",
    // Each rank of a job is on at most one node.
    R"(CREATE TABLE node_ranks (
      job TEXT NOT NULL,
      dp_rank BIGINT NOT NULL,
      pp_rank BIGINT NOT NULL,
      tp_rank BIGINT NOT NULL,
      node TEXT NOT NULL,
      PRIMARY KEY (job, dp_rank, pp_rank, tp_rank),
      FOREIGN KEY (job, node) REFERENCES nodes (job, node) ON DELETE CASCADE))",
    "CREATE INDEX node_ranks_node ON node_ranks (job, node)",
    // Which process has the name of a node.
    R"(CREATE TABLE node_claims (
      node TEXT PRIMARY KEY,
      instance TEXT NOT NULL,
      seen BIGINT NOT NULL))",
    R"(CREATE TABLE stragglers (
      job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
      dp_rank BIGINT NOT NULL,
      source TEXT NOT NULL,
      slowdown DOUBLE PRECISION NOT NULL,
      starts BIGINT NOT NULL,
      expires BIGINT NOT NULL,
      PRIMARY KEY (job, dp_rank, source)))",
    R"(CREATE TABLE tokens (
      id TEXT PRIMARY KEY,
      hash TEXT NOT NULL,
      scope TEXT NOT NULL,
      job TEXT NOT NULL,
      name TEXT NOT NULL,
      created BIGINT NOT NULL,
      expires BIGINT NOT NULL))",
    // Ranks of clients of Zeus.
    R"(CREATE TABLE zeus_ranks (
      job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
      rank BIGINT NOT NULL,
      position BIGINT NOT NULL,
      body TEXT NOT NULL,
      PRIMARY KEY (job, rank)))",
    "CREATE UNIQUE INDEX zeus_ranks_position ON zeus_ranks (job, position)",
};

// Version 2: bounds of tokens, owners of jobs, and the audit trail.
constexpr std::string_view kVersion2[] = {
    "ALTER TABLE tokens ADD COLUMN nodes TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE tokens ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE tokens ADD COLUMN certificate TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE tokens ADD COLUMN previous_hash TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE tokens ADD COLUMN previous_until BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE tokens ADD COLUMN issued_by TEXT NOT NULL DEFAULT ''",
    "CREATE INDEX tokens_nodes ON tokens (nodes)",
    // In version 1, a token of scope agent was valid for every node.
    "UPDATE tokens SET nodes = '*' WHERE scope = 'agent'",
    "ALTER TABLE jobs ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
    // When ranks of the job on the node last ended a step. Before the first step: when they were
    // attached.
    "ALTER TABLE nodes ADD COLUMN ran BIGINT NOT NULL DEFAULT 0",
    // Append-only (audit.h). It has no reference to jobs, because the trail outlives them. Nothing
    // reads the columns `hash` here and in audit_head. Earlier versions used them to chain records.
    R"(CREATE TABLE audit (
      number BIGINT PRIMARY KEY,
      at BIGINT NOT NULL,
      action TEXT NOT NULL,
      job TEXT NOT NULL,
      job_key TEXT NOT NULL,
      subject TEXT NOT NULL,
      who TEXT NOT NULL,
      name TEXT NOT NULL,
      role TEXT NOT NULL,
      peer TEXT NOT NULL,
      trace TEXT NOT NULL,
      old_value TEXT NOT NULL,
      new_value TEXT NOT NULL,
      reason TEXT NOT NULL,
      hash TEXT NOT NULL))",
    "CREATE INDEX audit_job ON audit (job, number)",
    "CREATE INDEX audit_who ON audit (who, number)",
    // One row with the newest record. An append locks this row.
    "CREATE TABLE audit_head (number BIGINT NOT NULL, hash TEXT NOT NULL)",
    "INSERT INTO audit_head VALUES (0, '')",
};

// Version 3: stragglers that measurements contradict, and ended stragglers.
constexpr std::string_view kStragglerChecks[] = {
    // When the straggler was suspended, and the slowdown that was measured then. 0: not suspended.
    "ALTER TABLE stragglers ADD COLUMN suspended BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE stragglers ADD COLUMN measured DOUBLE PRECISION NOT NULL DEFAULT 0",
    R"(CREATE TABLE straggler_history (
      number {serial key},
      job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
      dp_rank BIGINT NOT NULL,
      source TEXT NOT NULL,
      slowdown DOUBLE PRECISION NOT NULL,
      starts BIGINT NOT NULL,
      ended BIGINT NOT NULL,
      measured DOUBLE PRECISION NOT NULL,
      why TEXT NOT NULL))",
    "CREATE INDEX straggler_history_job ON straggler_history (job, number)",
    // One row, which readiness checks change.
    "CREATE TABLE heartbeat (at BIGINT NOT NULL)",
    "INSERT INTO heartbeat VALUES (0)",
};

// Version 4: the comparison of plans with the default clocks.
constexpr std::string_view kPlanGuards[] = {
    R"(CREATE TABLE plan_guards (
      job TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
      state TEXT NOT NULL,
      profile_version BIGINT NOT NULL,
      target TEXT NOT NULL,
      with_plan DOUBLE PRECISION NOT NULL,
      without_plan DOUBLE PRECISION NOT NULL,
      error DOUBLE PRECISION NOT NULL,
      since BIGINT NOT NULL,
      why TEXT NOT NULL))",
};

// Version 5. This program does not use the table. The table stays for servers of version 0.1.0 that
// still run.
constexpr std::string_view kPlanningTraces[] = {
    R"(CREATE TABLE planning_traces (
      job TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
      trace TEXT NOT NULL,
      span TEXT NOT NULL))",
};

// Version 6: the time and energy of a plan in its row, so that nobody has to read the plan file for
// these numbers.
constexpr std::string_view kNumbersOfPlans[] = {
    "ALTER TABLE plans ADD COLUMN time_s DOUBLE PRECISION NOT NULL DEFAULT 0",
    "ALTER TABLE plans ADD COLUMN energy_j DOUBLE PRECISION NOT NULL DEFAULT 0",
    "ALTER TABLE plans ADD COLUMN baseline_time_s DOUBLE PRECISION NOT NULL DEFAULT 0",
    "ALTER TABLE plans ADD COLUMN baseline_energy_j DOUBLE PRECISION NOT NULL DEFAULT 0",
};

// Version 7: which ranks of a node run, and which have no lease of their GPU.
constexpr std::string_view kRunningRanks[] = {
    // -1: unknown, because the node is older.
    "ALTER TABLE nodes ADD COLUMN running BIGINT NOT NULL DEFAULT -1",
    "ALTER TABLE nodes ADD COLUMN without_lease BIGINT NOT NULL DEFAULT 0",
};

// kVersions[i] upgrades version i to version i + 1.
constexpr std::span<const std::string_view> kVersions[] = {
    kVersion1,       kVersion2,       kStragglerChecks, kPlanGuards,
    kPlanningTraces, kNumbersOfPlans, kRunningRanks};
static_assert(std::size(kVersions) == kSchemaVersion);

std::string InDialect(std::string_view statement, const Dialect& dialect) {
  std::string text(statement);
  if (const std::size_t at = text.find(kSerialKey); at != std::string::npos) {
    text.replace(at, kSerialKey.size(), dialect.serial_key);
  }
  return text;
}

Result<void> CreateTables(Transaction& transaction, const Dialect& dialect, std::int64_t wanted) {
  PERSEUS_RETURN_IF_ERROR(
      transaction.Run("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)", {}));
  PERSEUS_ASSIGN_OR_RETURN(const Rows rows,
                           transaction.Run("SELECT version FROM schema_version", {}));
  const std::int64_t version = rows.empty() ? 0 : rows.front().Integer(0);
  if (version == wanted) return {};
  if (version < 0 || version > kSchemaVersion) {
    return Fail(
        "the tables of the database have version {}, but this program needs version {} or older "
        "(use the program that made them, or restore a backup of an older one into a new "
        "database)",
        version, kSchemaVersion);
  }
  for (std::int64_t next = version; next < wanted; ++next) {
    for (const std::string_view statement : kVersions[next]) {
      PERSEUS_RETURN_IF_ERROR(transaction.Run(InDialect(statement, dialect), {}));
    }
  }
  PERSEUS_RETURN_IF_ERROR(transaction.Run("DELETE FROM schema_version", {}));
  PERSEUS_RETURN_IF_ERROR(transaction.Run("INSERT INTO schema_version VALUES ($1)", {wanted}));
  return {};
}

}  // namespace

Result<void> CreateTables(Database& database, std::int64_t wanted) {
  const Dialect& dialect = database.dialect();
  return database.Transact([&](Transaction& transaction) -> Result<void> {
    if (!dialect.lock_schema.empty()) {
      PERSEUS_RETURN_IF_ERROR(transaction.Run(dialect.lock_schema, {}));
    }
    return CreateTables(transaction, dialect, wanted);
  });
}

}  // namespace perseus::store
