#include "perseus/cluster/server/database_probe.h"

#include <condition_variable>
#include <utility>

namespace perseus::server {
namespace {

constexpr const char* kNoAnswer = "the database does not answer";

}  // namespace

DatabaseProbe::DatabaseProbe(store::Store& store, std::function<Milliseconds()> now,
                             std::function<void()> after_write)
    : store_(store),
      now_(std::move(now)),
      after_write_(std::move(after_write)),
      failed_writes_(store.failed_writes()),
      thread_([this](const std::stop_token& ends) { Run(ends); }) {}

std::string DatabaseProbe::Problem() const {
  const MutexLock lock(mutex_);
  const bool is_silent = IsSilent(std::chrono::steady_clock::now(), kPingPatience);
  return is_silent || !outage_.empty() ? kNoAnswer : write_problem_;
}

std::string DatabaseProbe::Outage(Time now) const {
  const MutexLock lock(mutex_);
  return IsSilent(now, kSilence) ? kNoAnswer : outage_;
}

void DatabaseProbe::Run(const std::stop_token& ends) {
  Mutex mutex;
  std::condition_variable_any ended;
  const MutexLock lock(mutex);
  while (!ends.stop_requested()) {
    Ping();
    Write();
    ended.wait_for(mutex, ends, kPingEvery, [] { return false; });
  }
}

void DatabaseProbe::Ping() {
  {
    const MutexLock lock(mutex_);
    is_waiting_ = true;
    sent_ = std::chrono::steady_clock::now();
  }
  const Result<void> answer = store_.Ping();
  const MutexLock lock(mutex_);
  is_waiting_ = false;
  outage_ = answer ? "" : answer.error().Message();
}

// Makes a change if the last change is long enough ago, or at once after any other change failed.
void DatabaseProbe::Write() {
  const Time now = std::chrono::steady_clock::now();
  const std::int64_t failed = store_.failed_writes();
  if (now < next_write_ && failed == failed_writes_) return;
  const Result<void> wrote = store_.PingWrite(now_());
  const bool is_refused = !wrote || failed != failed_writes_;
  failed_writes_ = store_.failed_writes();
  next_write_ = now + (is_refused ? kWriteAgainEvery : kWriteEvery);
  {
    const MutexLock lock(mutex_);
    write_problem_ = !wrote       ? wrote.error().Message()
                     : is_refused ? "the database refused a change in the last second"
                                  : std::string();
  }
  after_write_();
}

}  // namespace perseus::server
