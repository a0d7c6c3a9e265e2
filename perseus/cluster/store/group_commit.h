// Combines the transactions of many threads into few commits of an SQLite database.
//
// A disk confirms only a few hundred commits per second (266 were measured), however small they
// are. So a transaction that arrives during a commit waits for the next commit. The next commit
// contains all waiting transactions that have the same durability as the oldest transaction. Each
// transaction runs in a savepoint, so that a failure undoes only its own changes. A call returns
// when its transaction is committed.
//
// LATENCY
//   A commit with kInMemory does not wait for the disk. A commit with kOnDisk waits for the disk.
//   The transactions of one commit run for at most as long as the disk needed for the last commit,
//   or for kLeastWork if that is longer. The remaining transactions wait for the next commit. So a
//   call waits for at most about four times the time of the disk, unless the work of all waiting
//   callers alone takes longer. The server refuses requests before that happens (WaitingRequests in
//   server/identity/caller_limits.h).
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/cluster/store/database.h"
#include "perseus/cluster/store/sqlite_connection.h"

namespace perseus::store {

class GroupCommit {
 public:
  // `mutex` guards `connection`. After each commit, `committed` receives the notices of the commit,
  // on the writing thread.
  GroupCommit(SqliteConnection& connection, Mutex& mutex,
              std::function<void(const std::vector<Notice>&)> committed);
  ~GroupCommit();  // No call of Transact() may run at this time.
  GroupCommit(const GroupCommit&) = delete;
  GroupCommit& operator=(const GroupCommit&) = delete;

  Result<void> Transact(const Database::Work& work, Durability durability);

 private:
  struct Request {
    const Database::Work* work;
    Durability durability;
    std::optional<Result<void>> result;  // Set after the transaction has run.
    std::exception_ptr thrown;
    std::vector<Notice> notices;
    bool done = false;
  };

  using Batch = std::vector<Request*>;

  void Run();
  // Takes the requests from waiting_ that the next commit may contain.
  Batch TakeBatch() PERSEUS_REQUIRES(mutex_);
  // Commits the requests of `batch`, as many as the time allows. Afterwards `batch` contains the
  // requests that were committed or have failed. Returns the remaining requests.
  Batch Commit(Batch& batch);
  Result<void> RunAll(Batch& batch, Batch& rest) PERSEUS_REQUIRES(connection_mutex_);
  Result<void> SetDurability(Durability durability) PERSEUS_REQUIRES(connection_mutex_);
  Result<void> RunOne(Request& request) PERSEUS_REQUIRES(connection_mutex_);

  Mutex& connection_mutex_;
  SqliteConnection& connection_ PERSEUS_GUARDED_BY(connection_mutex_);
  const std::function<void(const std::vector<Notice>&)> committed_;
  Mutex mutex_;
  std::condition_variable_any arrived_;
  std::condition_variable_any done_;
  Batch waiting_ PERSEUS_GUARDED_BY(mutex_);
  bool stopping_ PERSEUS_GUARDED_BY(mutex_) = false;
  // The following members are used only by thread_.
  Durability durability_ = Durability::kOnDisk;       // The connection's setting.
  std::chrono::steady_clock::duration disk_takes_{};  // The time to confirm the last commit.
  std::thread thread_;
};

}  // namespace perseus::store
