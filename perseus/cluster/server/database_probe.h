// Checks whether the database answers now and accepts changes.
//
// A separate thread pings the database every kPingEvery. A load balancer needs to know within a
// second whether the database is available. If a ping has no answer after kPingPatience, the
// database counts as unavailable for load balancers until it answers. Nodes and requests wait
// longer, because a busy database may be slow. For them, the database is unavailable after
// kSilence. Every kWriteEvery the thread also makes a change, because with a full disk a database
// still answers queries.
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
  // The time without an answer after which the database is unavailable for nodes and requests. (If
  // the network loses all packets, no error is reported for a long time.)
  static constexpr std::chrono::seconds kSilence{10};
  static constexpr std::chrono::milliseconds kWriteEvery{5'000};
  // The interval between changes while changes fail.
  static constexpr std::chrono::milliseconds kWriteAgainEvery{1'000};

  // `after_write` is called on the thread of the probe after each attempt to make a change.
  DatabaseProbe(store::Store& store, std::function<Milliseconds()> now,
                std::function<void()> after_write);

  // Returns the problem, or an empty text if the database answers and accepts changes.
  std::string Problem() const;
  // Returns why nodes and requests cannot use the database, or an empty text if they can.
  using Time = std::chrono::steady_clock::time_point;
  std::string Outage(Time now = std::chrono::steady_clock::now()) const;

 private:
  bool IsSilent(Time now, std::chrono::milliseconds patience) const PERSEUS_REQUIRES(mutex_) {
    return is_waiting_ && now - sent_ >= patience;
  }
  void Run(const std::stop_token& ends);
  void Ping();
  void Write();

  store::Store& store_;
  const std::function<Milliseconds()> now_;
  const std::function<void()> after_write_;
  mutable Mutex mutex_;
  // Whether the thread waits for the answer to a ping.
  bool is_waiting_ PERSEUS_GUARDED_BY(mutex_) = false;
  Time sent_ PERSEUS_GUARDED_BY(mutex_){};         // When the last ping was sent.
  std::string outage_ PERSEUS_GUARDED_BY(mutex_);  // The error of the last ping.
  std::string write_problem_ PERSEUS_GUARDED_BY(mutex_);
  std::int64_t failed_writes_ = 0;  // Used only by thread_.
  Time next_write_{};
  std::jthread thread_;  // This is the last member, because the thread uses all other members.
};

}  // namespace perseus::server
