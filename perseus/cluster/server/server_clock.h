// The time of day for a server, which never goes back when the machine's clock is set.
//
// The server stores when a straggler report begins and ends, and when a node was last seen. If the
// clock of the machine were set back by two hours, a report for 20 s would last for two hours. So
// the server reads the time of day once and then counts with the monotonic clock.
//
// Replicas store times in one database and compare them. So each replica starts with the time of
// the database's clock, and regularly compares its time with this clock. If the two differ by more
// than kTolerated twice in a row, somebody has set the database's clock. Then all replicas follow
// the database's clock, and straggler reports end sooner or later by this difference.
//
// Thread safe.
#pragma once

#include <atomic>
#include <functional>

#include "perseus/base/clock.h"
#include "perseus/base/units.h"

namespace perseus::server {

class ServerClock {
 public:
  static constexpr Milliseconds kTolerated = 2'000;
  // `monotonic` returns the time of a clock that nobody can set. Tests replace this function.
  using Monotonic = std::function<Milliseconds()>;
  explicit ServerClock(Milliseconds time_of_day, Monotonic monotonic = SteadyNow)
      : monotonic_(std::move(monotonic)), offset_ms_((time_of_day - monotonic_()).count()) {}

  Milliseconds Now() const { return monotonic_() + Milliseconds(offset_ms_); }

  // Compares the time with `database`, the time of the database's clock. Returns how much Now() has
  // changed. This is 0 unless somebody has set the database's clock.
  Milliseconds Compare(Milliseconds database) {
    const Milliseconds difference = database - Now();
    const bool differs = difference > kTolerated || difference < -kTolerated;
    if (!differs || !differed_.exchange(true)) {
      if (!differs) differed_ = false;
      return 0;
    }
    differed_ = false;
    offset_ms_ += difference.count();
    return difference;
  }

  static Milliseconds SteadyNow() { return WholeMilliseconds(MonotonicNow()); }

 private:
  const Monotonic monotonic_;
  std::atomic<std::int64_t> offset_ms_;
  std::atomic<bool> differed_ = false;
};

}  // namespace perseus::server
