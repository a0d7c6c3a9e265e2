#include "perseus/cluster/store/schema.h"

#include <span>
#include <string>

namespace perseus::store {
namespace {

// In place of a key's type that counts by itself, which each database calls by another name.
constexpr std::string_view kSerialKey = "{serial key}";

// What a job has goes with it (ON DELETE CASCADE). Numbers (serial keys) tell what came first.
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
      planned BIGINT NOT NULL DEFAULT 0,
      assignment_version BIGINT NOT NULL DEFAULT 0,
      last_step BIGINT NOT NULL DEFAULT -1,
      last_step_at BIGINT NOT NULL DEFAULT 0,
      summary TEXT NOT NULL DEFAULT ''))",
    "CREATE UNIQUE INDEX jobs_running_key ON jobs (key) WHERE ended = 0",
    "CREATE INDEX jobs_key ON jobs (key)",
    "CREATE INDEX jobs_ended ON jobs (ended)",
    // The newest alone: plans say the version that they were made of, and nothing else asks.
    R"(CREATE TABLE profiles (
      job TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
      csv TEXT NOT NULL))",
    R"(CREATE TABLE measurements (
      number {serial key},
      job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
      body TEXT NOT NULL,
      created BIGINT NOT NULL))",
    "CREATE INDEX measurements_job ON measurements (job, number)",
    // Due at `due`; if a worker has it, at `until` instead: then he is gone. What is wanted while
    // he has it is kept in `due` until he is done.
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
    R"(CREATE TABLE stragglers (
      job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
      pipeline BIGINT NOT NULL,
      source TEXT NOT NULL,
      slowdown DOUBLE PRECISION NOT NULL,
      starts BIGINT NOT NULL,
      expires BIGINT NOT NULL,
      PRIMARY KEY (job, pipeline, source)))",
    R"(CREATE TABLE tokens (
      id TEXT PRIMARY KEY,
      hash TEXT NOT NULL,
      scope TEXT NOT NULL,
      job TEXT NOT NULL,
      name TEXT NOT NULL,
      created BIGINT NOT NULL,
      expires BIGINT NOT NULL))",
    R"(CREATE TABLE ranks (
      job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
      rank BIGINT NOT NULL,
      body TEXT NOT NULL,
      PRIMARY KEY (job, rank)))",
    R"(CREATE TABLE results (
      number {serial key},
      job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
      rank BIGINT NOT NULL,
      body TEXT NOT NULL,
      created BIGINT NOT NULL))",
    "CREATE INDEX results_job ON results (job, rank, number)",
};

// Which process has a node's name.
constexpr std::string_view kVersion2[] = {
    R"(CREATE TABLE node_claims (
      node TEXT PRIMARY KEY,
      instance TEXT NOT NULL,
      seen BIGINT NOT NULL))",
};

// What measurements that are no profile yet have in bytes, and where a rank of Zeus' clients
// stands.
constexpr std::string_view kVersion3[] = {
    "ALTER TABLE jobs ADD COLUMN measured BIGINT NOT NULL DEFAULT 0",
    // Of registrations of older programs it is null, which is no other's place.
    "ALTER TABLE ranks ADD COLUMN place BIGINT",
    "CREATE UNIQUE INDEX ranks_place ON ranks (job, place)",
    // What ranks measured with their schedules was kept here, and nobody asked for it.
    "DROP TABLE results",
    // Which node has each rank. What older programs attached is here once it is attached again.
    R"(CREATE TABLE node_ranks (
      job TEXT NOT NULL,
      pipeline BIGINT NOT NULL,
      rank BIGINT NOT NULL,
      tp_rank BIGINT NOT NULL,
      node TEXT NOT NULL,
      PRIMARY KEY (job, pipeline, rank, tp_rank),
      FOREIGN KEY (job, node) REFERENCES nodes (job, node) ON DELETE CASCADE))",
    "CREATE INDEX node_ranks_node ON node_ranks (job, node)",
};

// kMigrations[v] makes tables of version v + 1 of those of version v. Never changed, only added to.
constexpr std::span<const std::string_view> kMigrations[] = {kVersion1, kVersion2, kVersion3};

std::string InDialect(std::string_view statement, const Dialect& dialect) {
  std::string text(statement);
  if (const std::size_t at = text.find(kSerialKey); at != std::string::npos) {
    text.replace(at, kSerialKey.size(), dialect.serial_key);
  }
  return text;
}

Result<std::int64_t> FindVersion(Transaction& transaction) {
  if (const auto made = transaction.Run(
          "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)", {});
      !made) {
    return Fail(made);
  }
  PERSEUS_ASSIGN_OR_RETURN(const Rows rows,
                           transaction.Run("SELECT version FROM schema_version", {}));
  return rows.empty() ? 0 : rows.front().Integer(0);
}

// Takes one step, if one is left. The version after it.
Result<std::int64_t> MigrateOnce(Transaction& transaction, const Dialect& dialect) {
  if (!dialect.lock_schema.empty()) {
    if (const auto locked = transaction.Run(dialect.lock_schema, {}); !locked) return Fail(locked);
  }
  Result<std::int64_t> version = FindVersion(transaction);
  if (!version) return version;
  if (*version > SchemaVersion()) {
    return Fail(
        "the database's tables are of version {}, and this program knows them up to {} (install "
        "the newer program, or name another database)",
        *version, SchemaVersion());
  }
  if (*version == SchemaVersion()) return version;
  for (const std::string_view statement : kMigrations[*version]) {
    if (const auto run = transaction.Run(InDialect(statement, dialect), {}); !run) return Fail(run);
  }
  if (const auto run = transaction.Run("DELETE FROM schema_version", {}); !run) return Fail(run);
  PERSEUS_RETURN_IF_ERROR(
      transaction.Run("INSERT INTO schema_version VALUES ($1)", {*version + 1}));
  return *version + 1;
}

}  // namespace

std::int64_t SchemaVersion() { return std::int64_t{std::size(kMigrations)}; }

Result<void> Migrate(Database& database) {
  for (std::int64_t version = -1; version != SchemaVersion();) {
    Result<void> migrated = database.Transact([&](Transaction& transaction) -> Result<void> {
      PERSEUS_ASSIGN_OR_RETURN(const std::int64_t reached,
                               MigrateOnce(transaction, database.dialect()));
      version = reached;
      return {};
    });
    if (!migrated) return migrated;
  }
  return {};
}

}  // namespace perseus::store
