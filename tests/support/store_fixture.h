// A fixture for tests of the store, which run on every kind of database.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/cluster/store/store.h"
#include "tests/support/postgres_server.h"
#include "tests/support/temporary_directory.h"

namespace perseus::store {

// Returns the server that all tests of the process share. The first test that needs the server
// starts it.
inline PostgresServer& SharedPostgres() {
  static PostgresServer server;
  return server;
}

// Returns the value. Fails the test if the result is an error.
template <typename T>
T Get(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().Message());
  return std::move(*result);
}
template <typename T>
void Succeed(const Result<T>& result) {
  if (!result) throw std::runtime_error(result.error().Message());
}

// Calls work(0), …, work(count - 1), each on its own thread. Returns when all calls have returned.
// An exception of a call fails the test.
template <typename Work>
void RunInThreads(std::size_t count, const Work& work) {
  std::vector<std::thread> threads;
  threads.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&work, i] {
      try {
        work(i);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Registers a job, and returns its id.
inline std::string Register(Store& store, const std::string& key, Milliseconds now = 1) {
  return Get(store.CreateJob({.key = key, .body = "{}", .target = "t"}, now)).job.id;
}

enum class Backend { kSqlite, kMemory, kPostgres };

inline std::string NameOf(const testing::TestParamInfo<Backend>& info) {
  switch (info.param) {
    case Backend::kSqlite:
      return "Sqlite";
    case Backend::kMemory:
      return "Memory";
    case Backend::kPostgres:
      break;
  }
  return "Postgres";
}

inline const auto kBackends =
    testing::Values(Backend::kSqlite, Backend::kMemory, Backend::kPostgres);

// The notices that a listener received. A test can wait for a notice.
class ReceivedNotices {
 public:
  void Add(const Notice& notice) {
    const MutexLock lock(mutex_);
    notices_.push_back(notice);
    added_.notify_all();
  }
  // Waits for the next notice.
  Notice Next() {
    const MutexLock lock(mutex_);
    while (notices_.empty()) added_.wait(mutex_);
    Notice next = notices_.front();
    notices_.pop_front();
    return next;
  }

 private:
  Mutex mutex_;
  std::condition_variable_any added_;
  std::deque<Notice> notices_ PERSEUS_GUARDED_BY(mutex_);
};

// A store on a new database, and a job in it.
class StoreTest : public testing::TestWithParam<Backend> {
 protected:
  Result<void> RecordStep(const std::string& job, std::int64_t step, const std::string& summary,
                          Milliseconds at) {
    return store_->RecordSteps({{.job = job, .step = step, .summary = summary, .at = at}});
  }
  void SetUp() override {
    if (GetParam() == Backend::kPostgres && !PostgresServer::WhyNot().empty()) {
      GTEST_SKIP() << PostgresServer::WhyNot();
    }
    switch (GetParam()) {
      case Backend::kSqlite:
        address_ = "sqlite:" + (directory_ / "perseus.db").string();
        break;
      case Backend::kMemory:
        address_ = "sqlite::memory:";
        break;
      case Backend::kPostgres:
        address_ = SharedPostgres().MakeDatabase();
        break;
    }
    store_ = Get(OpenStore(address_));
    job_ = Register("run7");
  }

  std::string Register(const std::string& key, Milliseconds now = 1000) {
    return store::Register(*store_, key, now);
  }
  JobRecord Job(const std::string& id_or_key) { return Get(store_->FindJob(id_or_key)).value(); }
  JobRecord Job() { return Job(job_); }

  // Returns a plan of the job without an id and a time, which the store fills in.
  PlanRecord NewPlan(const std::string& slug, std::int64_t profile_version,
                     const std::string& body = "{}") const {
    return {.id = {}, .job = job_, .slug = slug, .profile_version = profile_version, .body = body};
  }

  TemporaryDirectory directory_;
  std::string address_;
  std::unique_ptr<Store> store_;
  std::string job_;
};

}  // namespace perseus::store
