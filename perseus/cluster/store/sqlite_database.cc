// The SQLite driver. One connection writes (group_commit.h), and another reads committed data.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/cluster/store/database.h"
#include "perseus/cluster/store/group_commit.h"
#include "perseus/cluster/store/notice_thread.h"
#include "perseus/cluster/store/sqlite_connection.h"

namespace perseus::store {
namespace {

// Locks the database for one process, from Take() until destruction. This is a separate file,
// because SQLite loses its own locks when the process closes any descriptor of the database file.
class LockFile {
 public:
  LockFile() = default;
  LockFile(LockFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  LockFile& operator=(LockFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~LockFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  static Result<LockFile> Take(const std::string& database) {
    const std::string path = database + ".lock";
    LockFile lock;
    lock.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock.fd_ < 0) {
      return FailAs(
          ErrorKind::kSystem,
          "cannot open {}: {} (check that its directory exists and that this user may write there)",
          path, std::strerror(errno));
    }
    if (::flock(lock.fd_, LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno == EWOULDBLOCK) {
      return FailAs(ErrorKind::kSystem,
                    "another server uses the database {} (SQLite is for one server; use "
                    "postgresql:// for several)",
                    database);
    }
    return FailAs(ErrorKind::kSystem, "cannot lock {}: {} (put it on a local disk)", path,
                  std::strerror(errno));
  }

 private:
  int fd_ = -1;
};

// Creates the file so that only its owner can read it, because it contains hashes of tokens. SQLite
// gives its logs the same mode. Errors are ignored here: SQLite reports them when it opens the
// file.
void MakePrivateFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd >= 0) ::close(fd);  // This must happen before SQLite has locks that it could lose.
}

class SqliteDatabase final : public Database {
 public:
  // A database in memory has no `reader`, because only one connection sees it.
  SqliteDatabase(LockFile lock, SqliteConnection writer, std::unique_ptr<SqliteConnection> reader)
      : lock_(std::move(lock)),
        writer_(std::move(writer)),
        reader_(std::move(reader)),
        commits_(writer_, writer_mutex_,
                 [this](const std::vector<Notice>& notices) { Send(notices); }) {}

  ~SqliteDatabase() override {
    // The listener may be in a transaction, and commits_ may be sending.
    std::unique_ptr<NoticeThread> listener;
    {
      const MutexLock lock(listener_mutex_);
      listener.swap(listener_);
    }
  }

  const Dialect& dialect() const override {
    static constexpr Dialect kSqlite = {
        .serial_key = "INTEGER PRIMARY KEY AUTOINCREMENT",
        .for_update = "",  // There is only one writer.
        .skip_locked = "",
        .lock_schema = "",
        .shrink = "PRAGMA incremental_vacuum",
        .has_replicas = false,
    };
    return kSqlite;
  }

  Result<Rows> Read(std::string_view sql, Parameters parameters) override {
    if (const Result<void> fit = CheckParameters(parameters); !fit) return Fail(fit);
    const MutexLock lock(reader_ ? reader_mutex_ : writer_mutex_);
    return (reader_ ? *reader_ : writer_).Run(sql, parameters);
  }

  Result<void> Transact(const Work& work) override { return commits_.Transact(work); }

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

  const LockFile lock_;
  Mutex writer_mutex_;
  Mutex reader_mutex_;
  SqliteConnection writer_;                         // With writer_mutex_ held.
  const std::unique_ptr<SqliteConnection> reader_;  // With reader_mutex_ held.
  Mutex listener_mutex_;
  std::unique_ptr<NoticeThread> listener_ PERSEUS_GUARDED_BY(listener_mutex_);
  GroupCommit commits_;  // The last member, because its thread uses the members above.
};

}  // namespace

Result<std::unique_ptr<Database>> OpenSqlite(const std::string& path) {
  const bool is_in_memory = path == ":memory:";
  LockFile lock;
  if (!is_in_memory) {
    PERSEUS_ASSIGN_OR_RETURN(LockFile taken, LockFile::Take(path));
    lock = std::move(taken);
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
