// The time of day for a server, from a clock that is never set back.
//
// The server stores when a straggler report begins and ends, and when a node was last seen. If the
// clock of the machine were set back by two hours, a report for 20 s would last for two hours. So
// the server reads the time of day once and then counts with the monotonic clock.
//
// Replicas compare their times in one database, so they start with the database's clock and
// regularly compare with it. If it differs by more than kTolerated twice in a row, somebody set
// that clock, and all replicas follow it. Then straggler reports end sooner or later by this
// difference.
//
// Thread safe.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>

#include "perseus/cluster/store/records.h"

namespace perseus::server {

class ServerClock {
 public:
  static constexpr store::Milliseconds kTolerated = 2'000;
  // `monotonic` returns milliseconds of a clock that is never set. Tests replace it.
  using Monotonic = std::function<store::Milliseconds()>;
  explicit ServerClock(store::Milliseconds time_of_day, Monotonic monotonic = SteadyNow)
      : monotonic_(std::move(monotonic)), offset_(time_of_day - monotonic_()) {}

  store::Milliseconds Now() const { return monotonic_() + offset_; }

  // Compares with the database's clock. Returns by how much the time changed: 0 unless somebody set
  // the database's clock.
  store::Milliseconds Compare(store::Milliseconds database) {
    const store::Milliseconds difference = database - Now();
    const bool differs = difference > kTolerated || difference < -kTolerated;
    if (!differs || !differed_.exchange(true)) {
      if (!differs) differed_ = false;
      return 0;
    }
    differed_ = false;
    offset_ += difference;
    return difference;
  }

  static store::Milliseconds SteadyNow() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

 private:
  const Monotonic monotonic_;
  std::atomic<store::Milliseconds> offset_;
  std::atomic<bool> differed_ = false;
};

}  // namespace perseus::server
