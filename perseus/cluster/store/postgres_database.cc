// The PostgreSQL driver: a few connections, each of which serves one call at a time.
#include <chrono>
#include <condition_variable>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/base/random.h"
#include "perseus/cluster/store/database.h"
#include "perseus/cluster/store/postgres_connection.h"
#include "perseus/cluster/store/postgres_listener.h"

namespace perseus::store {
namespace {

constexpr int kConnections = 4;
// How often a transaction is tried if it conflicts with other transactions.
constexpr int kTransactionTries = 8;
// The longest pause before the second try. The longest pause doubles with each further try.
constexpr std::chrono::milliseconds kFirstPause{20};

class PostgresTransaction final : public Transaction {
 public:
  explicit PostgresTransaction(PostgresConnection& connection) : connection_(connection) {}

  Result<Rows> Run(std::string_view sql, Parameters parameters) override {
    PERSEUS_RETURN_IF_ERROR(CheckParameters(parameters));
    Result<Rows> rows = connection_.Run(sql, parameters);
    if (!rows && connection_.WasInConflict()) was_in_conflict_ = true;
    return rows;
  }
  Result<void> Notify(const Notice& notice) override {
    PERSEUS_RETURN_IF_ERROR(
        Run("SELECT pg_notify($1, $2)", {kNoticeChannel, std::string_view(NoticeText(notice))}));
    return {};
  }
  bool was_in_conflict() const { return was_in_conflict_; }

 private:
  PostgresConnection& connection_;
  bool was_in_conflict_ = false;
};

// The result of one attempt to run a transaction.
struct Attempt {
  Result<void> result;
  bool may_repeat = false;  // Whether nothing was written and another attempt may succeed.
};

Attempt TryTransaction(PostgresConnection& connection, const Database::Work& work,
                       Durability durability) {
  auto begun = connection.Run("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", {});
  if (begun && durability == Durability::kInMemory) {
    begun = connection.Run("SET LOCAL synchronous_commit = off", {});
  }
  if (!begun) return {.result = Fail(begun), .may_repeat = connection.IsLost()};
  PostgresTransaction transaction(connection);
  Result<void> worked = work(transaction);
  if (!worked) {
    const bool may_repeat = transaction.was_in_conflict() || connection.IsLost();
    if (!connection.IsLost()) (void)connection.Run("ROLLBACK", {});
    return {.result = std::move(worked), .may_repeat = may_repeat};
  }
  const auto committed = connection.Run("COMMIT", {});
  if (committed) return {.result = {}, .may_repeat = false};
  return {.result = Fail(committed), .may_repeat = connection.WasInConflict()};
}

class PostgresDatabase final : public Database {
 public:
  explicit PostgresDatabase(PostgresAddress address) : address_(std::move(address)) {}

  const Dialect& dialect() const override { return PostgresDialect(); }

  Result<Rows> Read(std::string_view sql, Parameters parameters) override {
    PERSEUS_RETURN_IF_ERROR(CheckParameters(parameters));
    Lease lease(*this);
    while (true) {
      PERSEUS_RETURN_IF_ERROR(lease.Connect());
      Result<Rows> rows = lease->Run(sql, parameters);
      if (rows || !lease->IsLost() || lease.is_new()) return rows;
    }
  }

  Result<void> Commit(const Work& work, Durability durability) override {
    Lease lease(*this);
    SplitMix64 random{std::random_device()()};
    std::chrono::duration<double, std::milli> longest_pause = kFirstPause;
    for (int i = 1;; ++i) {
      PERSEUS_RETURN_IF_ERROR(lease.Connect());
      Attempt attempt = TryTransaction(*lease, work, durability);
      const bool was_lost = lease->IsLost();
      if (attempt.result || !attempt.may_repeat || i == kTransactionTries) return attempt.result;
      if (was_lost && lease.is_new()) return attempt.result;
      if (was_lost) continue;
      // The pause is random from 0 on, so that two transactions that conflict rarely wait equally
      // long.
      std::this_thread::sleep_for(longest_pause * Uniform(random));
      longest_pause *= 2;
    }
  }

  Result<void> Listen(Receive receive) override {
    const MutexLock lock(listen_mutex_);
    if (listener_) return Fail("Listen was already called on this store (call it once)");
    PERSEUS_ASSIGN_OR_RETURN(PostgresConnection connection, ConnectListener(address_));
    listener_.emplace(address_, std::move(connection), std::move(receive));
    return {};
  }

 private:
  // Holds one of the connections for one call.
  class Lease {
   public:
    explicit Lease(PostgresDatabase& database)
        : database_(database), connection_(database.Take()) {}
    ~Lease() { database_.Return(std::move(connection_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    // Opens a new connection if the current connection does not work.
    Result<void> Connect() {
      if (connection_ && !connection_->IsLost()) return {};
      PERSEUS_ASSIGN_OR_RETURN(PostgresConnection opened,
                               PostgresConnection::Open(database_.address_));
      connection_.emplace(std::move(opened));
      is_new_ = true;
      return {};
    }
    // Whether the connection was opened for this call. An older connection may have been lost long
    // ago.
    bool is_new() const { return is_new_; }
    PostgresConnection& operator*() { return *connection_; }
    PostgresConnection* operator->() { return &*connection_; }

   private:
    PostgresDatabase& database_;
    std::optional<PostgresConnection> connection_;
    bool is_new_ = false;
  };

  // Waits until fewer than kConnections are in use. Returns nullopt if no idle connection is open.
  std::optional<PostgresConnection> Take() {
    const MutexLock lock(mutex_);
    while (in_use_ == kConnections) returned_.wait(mutex_);
    ++in_use_;
    if (idle_.empty()) return std::nullopt;
    std::optional<PostgresConnection> taken(std::move(idle_.back()));
    idle_.pop_back();
    return taken;
  }
  void Return(std::optional<PostgresConnection> connection) {
    {
      const MutexLock lock(mutex_);
      --in_use_;
      if (connection && connection->IsIdle()) idle_.push_back(std::move(*connection));
    }
    returned_.notify_one();
  }

  const PostgresAddress address_;
  Mutex mutex_;
  std::condition_variable_any returned_;
  std::vector<PostgresConnection> idle_ PERSEUS_GUARDED_BY(mutex_);
  int in_use_ PERSEUS_GUARDED_BY(mutex_) = 0;
  Mutex listen_mutex_;
  // This is the last member, because its thread uses the members above.
  std::optional<PostgresListener> listener_ PERSEUS_GUARDED_BY(listen_mutex_);
};

}  // namespace

const Dialect& PostgresDialect() {
  static constexpr Dialect kPostgres = {
      .serial_key = "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
      .for_update = "FOR UPDATE",
      .skip_locked = "FOR UPDATE SKIP LOCKED",
      .lock_schema =
          "SELECT pg_advisory_xact_lock(8100399027)",  // A number that no other program uses.
      .shrink = "",                                    // Autovacuum frees the space.
      .clock = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
      .has_replicas = true,
  };
  return kPostgres;
}

Result<std::unique_ptr<Database>> OpenPostgres(const std::string& url) {
  PERSEUS_ASSIGN_OR_RETURN(PostgresAddress address, ParsePostgresAddress(url));
  auto database = std::make_unique<PostgresDatabase>(std::move(address));
  PERSEUS_RETURN_IF_ERROR(database->Read("SELECT 1", {}));
  return database;
}

}  // namespace perseus::store
