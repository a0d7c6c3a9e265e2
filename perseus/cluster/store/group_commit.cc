#include "perseus/cluster/store/group_commit.h"

#include <utility>

namespace perseus::store {
namespace {

class SqliteTransaction final : public Transaction {
 public:
  SqliteTransaction(SqliteConnection& connection, std::vector<Notice>& notices)
      : connection_(connection), notices_(notices) {}

  Result<Rows> Run(std::string_view sql, Parameters parameters) override {
    if (const Result<void> fit = CheckParameters(parameters); !fit) return Fail(fit);
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
    : connection_(connection),
      connection_mutex_(mutex),
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

Result<void> GroupCommit::Transact(const Database::Work& work) {
  Request request{.work = &work, .result = {}, .thrown = {}, .notices = {}};
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
    std::vector<Request*> batch;
    {
      const MutexLock lock(mutex_);
      while (!stopping_ && waiting_.empty()) arrived_.wait(mutex_);
      if (waiting_.empty()) return;
      batch.swap(waiting_);
    }
    Commit(batch);
    {
      const MutexLock lock(mutex_);
      for (Request* request : batch) request->done = true;
    }
    done_.notify_all();
  }
}

void GroupCommit::Commit(const std::vector<Request*>& batch) {
  Result<void> committed;
  {
    const MutexLock lock(connection_mutex_);
    committed = RunAll(batch);
    if (!committed && connection_.IsInTransaction()) (void)connection_.Run("ROLLBACK", {});
  }
  std::vector<Notice> notices;
  for (Request* request : batch) {
    if (!committed && (!request->result || *request->result)) request->result = committed;
    if (!*request->result) continue;
    notices.insert(notices.end(), request->notices.begin(), request->notices.end());
  }
  if (!notices.empty()) committed_(notices);
}

// Fails if the whole batch is lost.
Result<void> GroupCommit::RunAll(const std::vector<Request*>& batch) {
  // Immediate: a transaction that takes the write lock later could fail to get it.
  if (const Result<Rows> begun = connection_.Run("BEGIN IMMEDIATE", {}); !begun) return Fail(begun);
  for (Request* request : batch) {
    if (Result<void> run = RunOne(*request); !run) return run;
  }
  if (const Result<Rows> committed = connection_.Run("COMMIT", {}); !committed) {
    return Fail(committed);
  }
  return {};
}

// Fails if the transactions before it in the batch are lost, too.
Result<void> GroupCommit::RunOne(Request& request) {
  if (const Result<Rows> saved = connection_.Run("SAVEPOINT one", {}); !saved) return Fail(saved);
  SqliteTransaction transaction(connection_, request.notices);
  try {
    request.result = (*request.work)(transaction);
  } catch (...) {  // Transact() throws it again on the thread of the caller.
    request.thrown = std::current_exception();
    request.result = FailAs(ErrorKind::kSystem, "a transaction ended by an exception (try again)");
  }
  if (!connection_.IsInTransaction()) return *request.result;
  if (!*request.result) {
    if (const Result<Rows> back = connection_.Run("ROLLBACK TO one", {}); !back) return Fail(back);
  }
  if (const Result<Rows> kept = connection_.Run("RELEASE one", {}); !kept) return Fail(kept);
  return {};
}

}  // namespace perseus::store
