// The SQLite driver. One connection writes (group_commit.h), and another connection reads what was
// committed.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/mutex.h"
#include "perseus/cluster/store/database.h"
#include "perseus/cluster/store/group_commit.h"
#include "perseus/cluster/store/sqlite_connection.h"

namespace perseus::store {
namespace {

// Locks the database for one process while the returned file is open. The lock is on a separate
// file. If it were on the database file, SQLite would lose its own locks when the process closes
// the descriptor. Only the owner may read it, because any reader can lock a file.
Result<FileDescriptor> LockDatabase(const std::string& database) {
  const std::string path = database + ".lock";
  FileDescriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  // An earlier version of Perseus let all users read it.
  if (lock) static_cast<void>(::fchmod(lock.get(), 0600));
  if (!lock) {
    return FailAs(ErrorKind::kSystem,
                  "cannot open {}: {} (does its directory exist, and may this user write there?)",
                  path, std::strerror(errno));
  }
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK) {
    return FailAs(ErrorKind::kSystem,
                  "another server uses the database {} (SQLite is for one server; use "
                  "postgresql:// for several)",
                  database);
  }
  return FailAs(ErrorKind::kSystem, "cannot lock {}: {} (put it on a local disk)", path,
                std::strerror(errno));
}

// Creates the file so that only its owner can read it, because it contains hashes of tokens. SQLite
// gives its logs the same mode. Errors are ignored here, because SQLite reports them when it opens
// the file.
void MakePrivateFile(const std::string& path) {
  // Close the file at once. If it were closed later, SQLite would lose its locks.
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
}

// Passes notices to one listener, in order, on its own thread.
struct NoticeThread {
  explicit NoticeThread(Database::Receive called) : receive(std::move(called)) {}

  const Database::Receive receive;
  // The destructor waits for the running call of `receive`, and drops the notices that wait.
  boost::asio::thread_pool thread{1};

  void Send(const Notice& notice) {
    boost::asio::post(thread, [this, notice] { receive(notice); });
  }
};

class SqliteDatabase final : public Database {
 public:
  // A database in memory has no `reader`, because only one connection sees it.
  SqliteDatabase(FileDescriptor lock, SqliteConnection writer,
                 std::unique_ptr<SqliteConnection> reader)
      : lock_(std::move(lock)),
        writer_(std::move(writer)),
        reader_(std::move(reader)),
        commits_(writer_, writer_mutex_,
                 [this](const std::vector<Notice>& notices) { Send(notices); }) {}

  ~SqliteDatabase() override {
    // Destroy the listener without the lock, because it may be in a transaction, and commits_ may
    // be sending a notice.
    std::unique_ptr<NoticeThread> listener;
    {
      const MutexLock lock(listener_mutex_);
      listener.swap(listener_);
    }
  }

  const Dialect& dialect() const override { return SqliteDialect(); }

  Result<Rows> Read(std::string_view sql, Parameters parameters) override {
    PERSEUS_RETURN_IF_ERROR(CheckParameters(parameters));
    if (!reader_) {
      const MutexLock lock(writer_mutex_);
      return writer_.Run(sql, parameters);
    }
    const MutexLock lock(reader_mutex_);
    return reader_->Run(sql, parameters);
  }

  Result<void> Commit(const Work& work, Durability durability) override {
    return commits_.Transact(work, durability);
  }

  Result<void> Listen(Receive receive) override {
    const MutexLock lock(listener_mutex_);
    if (listener_) return Fail("Listen was already called on this store (call it once)");
    listener_ = std::make_unique<NoticeThread>(std::move(receive));
    return {};
  }

 private:
  void Send(const std::vector<Notice>& notices) {
    const MutexLock lock(listener_mutex_);
    if (!listener_) return;
    for (const Notice& notice : notices) listener_->Send(notice);
  }

  const FileDescriptor lock_;
  Mutex writer_mutex_;
  Mutex reader_mutex_;
  SqliteConnection writer_ PERSEUS_GUARDED_BY(writer_mutex_);
  const std::unique_ptr<SqliteConnection> reader_ PERSEUS_POINTEE_GUARDED_BY(reader_mutex_);
  Mutex listener_mutex_;
  std::unique_ptr<NoticeThread> listener_ PERSEUS_GUARDED_BY(listener_mutex_);
  GroupCommit commits_;  // This is the last member, because its thread uses the members above.
};

}  // namespace

const Dialect& SqliteDialect() {
  static constexpr Dialect kSqlite = {
      .serial_key = "INTEGER PRIMARY KEY AUTOINCREMENT",
      .for_update = "",  // Not needed, because there is only one writer.
      .skip_locked = "",
      .lock_schema = "",
      .shrink = "PRAGMA incremental_vacuum",
      .clock = "",
      .has_replicas = false,
  };
  return kSqlite;
}

Result<std::unique_ptr<Database>> OpenSqlite(const std::string& path) {
  const bool is_in_memory = path == ":memory:";
  FileDescriptor lock;
  if (!is_in_memory) {
    PERSEUS_ASSIGN_OR_RETURN(lock, LockDatabase(path));
    MakePrivateFile(path);
  }
  PERSEUS_ASSIGN_OR_RETURN(SqliteConnection writer, SqliteConnection::Open(path));
  std::unique_ptr<SqliteConnection> reader;
  if (!is_in_memory) {
    PERSEUS_ASSIGN_OR_RETURN(SqliteConnection opened, SqliteConnection::Open(path));
    reader = std::make_unique<SqliteConnection>(std::move(opened));
  }
  return std::make_unique<SqliteDatabase>(std::move(lock), std::move(writer), std::move(reader));
}

}  // namespace perseus::store
