// Puts the transactions of many threads into few commits of an SQLite database.
//
// A disk confirms only a few hundred commits per second (266 were measured), however small they
// are. So a transaction that arrives during a commit waits for the next commit, which contains all
// waiting transactions. Each runs in a savepoint, so that a failure undoes only its own changes. A
// call returns when the commit of its transaction is on disk.
#pragma once

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
  // `connection` is used only with `mutex` held. `committed` is called after each commit with its
  // notices, on the writing thread.
  GroupCommit(SqliteConnection& connection, Mutex& mutex,
              std::function<void(const std::vector<Notice>&)> committed);
  ~GroupCommit();  // No Transact() may be running.
  GroupCommit(const GroupCommit&) = delete;
  GroupCommit& operator=(const GroupCommit&) = delete;

  Result<void> Transact(const Database::Work& work);

 private:
  struct Request {
    const Database::Work* work;
    std::optional<Result<void>> result;  // Set when the transaction has run.
    std::exception_ptr thrown;
    std::vector<Notice> notices;
    bool done = false;
  };

  void Run();
  void Commit(const std::vector<Request*>& batch);
  Result<void> RunAll(const std::vector<Request*>& batch);
  Result<void> RunOne(Request& request);

  SqliteConnection& connection_;
  Mutex& connection_mutex_;
  const std::function<void(const std::vector<Notice>&)> committed_;
  Mutex mutex_;
  std::condition_variable_any arrived_;
  std::condition_variable_any done_;
  std::vector<Request*> waiting_ PERSEUS_GUARDED_BY(mutex_);
  bool stopping_ PERSEUS_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace perseus::store
