// Whether the database answers now and accepts changes, for readiness.
//
// Maintenance (maintenance.h) checks the database every few seconds, which is soon enough for
// nodes. A load balancer wants to know within a second. So a thread of its own asks the database
// every kPingEvery. If a ping has no answer after kPingPatience, the database counts as dead until
// it answers. Every kWriteEvery it also makes a change, because a full disk still answers
// questions.
//
// Thread safe.
#pragma once

#include <chrono>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>

#include "perseus/base/mutex.h"
#include "perseus/cluster/store/store.h"

namespace perseus::server {

class DatabaseProbe {
 public:
  static constexpr std::chrono::milliseconds kPingEvery{250};
  static constexpr std::chrono::milliseconds kPingPatience{600};
  static constexpr std::chrono::milliseconds kWriteEvery{5'000};
  // While changes fail.
  static constexpr std::chrono::milliseconds kWriteAgainEvery{1'000};

  // `after_write` is called on the thread of the probe after each change that it tried.
  DatabaseProbe(store::Store& store, std::function<store::Milliseconds()> now,
                std::function<void()> after_write);

  // Empty if the database answers and accepts changes; otherwise what is wrong.
  std::string Problem() const;

 private:
  using Time = std::chrono::steady_clock::time_point;

  void Run(const std::stop_token& ends);
  void Ping();
  void Write();

  store::Store& store_;
  const std::function<store::Milliseconds()> now_;
  const std::function<void()> after_write_;
  mutable Mutex mutex_;
  bool is_waiting_ PERSEUS_GUARDED_BY(mutex_) = false;  // For the answer to a ping,
  Time sent_ PERSEUS_GUARDED_BY(mutex_){};              // which was sent then.
  bool answers_ PERSEUS_GUARDED_BY(mutex_) = true;
  std::string write_problem_ PERSEUS_GUARDED_BY(mutex_);
  std::int64_t failed_writes_ = 0;  // Of the thread.
  Time next_write_{};
  std::jthread thread_;  // The last member: it uses the others.
};

}  // namespace perseus::server
