#include "perseus/cluster/store/group_commit.h"

#include <algorithm>
#include <utility>

namespace perseus::store {
namespace {

// The transactions of one commit may take this long, even if the disk is faster.
constexpr std::chrono::milliseconds kLeastWork(10);

class SqliteTransaction final : public Transaction {
 public:
  SqliteTransaction(SqliteConnection& connection, std::vector<Notice>& notices)
      : connection_(connection), notices_(notices) {}

  Result<Rows> Run(std::string_view sql, Parameters parameters) override {
    PERSEUS_RETURN_IF_ERROR(CheckParameters(parameters));
    return connection_.Run(sql, parameters);
  }
  Result<void> Notify(const Notice& notice) override {
    notices_.push_back(notice);
    return {};
  }

 private:
  SqliteConnection& connection_;
  std::vector<Notice>& notices_;
};

}  // namespace

GroupCommit::GroupCommit(SqliteConnection& connection, Mutex& mutex,
                         std::function<void(const std::vector<Notice>&)> committed)
    : connection_mutex_(mutex),
      connection_(connection),
      committed_(std::move(committed)),
      thread_([this] { Run(); }) {}

GroupCommit::~GroupCommit() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_all();
  thread_.join();
}

Result<void> GroupCommit::Transact(const Database::Work& work, Durability durability) {
  Request request{
      .work = &work, .durability = durability, .result = {}, .thrown = {}, .notices = {}};
  {
    const MutexLock lock(mutex_);
    waiting_.push_back(&request);
    arrived_.notify_one();
    while (!request.done) done_.wait(mutex_);
  }
  if (request.thrown) std::rethrow_exception(request.thrown);
  return *request.result;
}

void GroupCommit::Run() {
  while (true) {
    Batch batch;
    {
      const MutexLock lock(mutex_);
      while (!stopping_ && waiting_.empty()) arrived_.wait(mutex_);
      if (waiting_.empty()) return;
      batch = TakeBatch();
    }
    const Batch rest = Commit(batch);
    {
      const MutexLock lock(mutex_);
      for (Request* request : batch) request->done = true;
      waiting_.insert(waiting_.begin(), rest.begin(), rest.end());
    }
    done_.notify_all();
  }
}

GroupCommit::Batch GroupCommit::TakeBatch() {
  const Durability durability = waiting_.front()->durability;
  const auto others = std::stable_partition(
      waiting_.begin(), waiting_.end(),
      [&](const Request* request) { return request->durability == durability; });
  Batch batch(waiting_.begin(), others);
  waiting_.erase(waiting_.begin(), others);
  return batch;
}

GroupCommit::Batch GroupCommit::Commit(Batch& batch) {
  Batch rest;
  Result<void> committed;
  {
    const MutexLock lock(connection_mutex_);
    committed = RunAll(batch, rest);
    if (!committed && connection_.IsInTransaction()) (void)connection_.Run("ROLLBACK", {});
  }
  std::vector<Notice> notices;
  for (Request* request : batch) {
    if (!committed && (!request->result || *request->result)) request->result = committed;
    if (!*request->result) continue;
    notices.insert(notices.end(), request->notices.begin(), request->notices.end());
  }
  if (!notices.empty()) committed_(notices);
  return rest;
}

// Sets PRAGMA synchronous. With a write-ahead log, SQLite's NORMAL writes without waiting for the
// disk. FULL waits until everything that was written before is on disk.
Result<void> GroupCommit::SetDurability(Durability durability) {
  if (durability == durability_) return {};
  PERSEUS_RETURN_IF_ERROR(connection_.Run(durability == Durability::kOnDisk
                                              ? "PRAGMA synchronous = FULL"
                                              : "PRAGMA synchronous = NORMAL",
                                          {}));
  durability_ = durability;
  return {};
}

// Runs the requests of `batch` in one transaction. Moves the requests for which the commit has no
// time to `rest`. Fails if the whole batch is lost.
Result<void> GroupCommit::RunAll(Batch& batch, Batch& rest) {
  using Clock = std::chrono::steady_clock;
  PERSEUS_RETURN_IF_ERROR(SetDurability(batch.front()->durability));
  const auto end = Clock::now() + std::max<Clock::duration>(disk_takes_, kLeastWork);
  // IMMEDIATE, because a transaction that takes the write lock later could fail to get it.
  PERSEUS_RETURN_IF_ERROR(connection_.Run("BEGIN IMMEDIATE", {}));
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (i > 0 && Clock::now() >= end) {
      const auto next = batch.begin() + static_cast<std::ptrdiff_t>(i);
      rest.assign(next, batch.end());
      batch.erase(next, batch.end());
      break;
    }
    PERSEUS_RETURN_IF_ERROR(RunOne(*batch[i]));
  }
  const auto begun = Clock::now();
  PERSEUS_RETURN_IF_ERROR(connection_.Run("COMMIT", {}));
  if (durability_ == Durability::kOnDisk) disk_takes_ = Clock::now() - begun;
  return {};
}

// Runs one request. Fails only if the earlier transactions of the batch are also lost.
Result<void> GroupCommit::RunOne(Request& request) {
  PERSEUS_RETURN_IF_ERROR(connection_.Run("SAVEPOINT one", {}));
  SqliteTransaction transaction(connection_, request.notices);
  try {
    request.result = (*request.work)(transaction);
  } catch (...) {  // Transact() throws it again on the thread of the caller.
    request.thrown = std::current_exception();
    request.result = FailAs(ErrorKind::kSystem, "a transaction ended by an exception (try again)");
  }
  if (!connection_.IsInTransaction()) return *request.result;
  if (!*request.result) {
    PERSEUS_RETURN_IF_ERROR(connection_.Run("ROLLBACK TO one", {}));
  }
  PERSEUS_RETURN_IF_ERROR(connection_.Run("RELEASE one", {}));
  return {};
}

}  // namespace perseus::store
