// Clock is the source of time for code that waits. Code takes a Clock as an argument, so a test can
// pass a FakeClock and never sleeps.
//
// Thread safety: several threads may call all functions at the same time.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "perseus/base/units.h"

namespace perseus {

class Clock {
 public:
  virtual ~Clock() = default;
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  // A time that never arrives.
  static constexpr Nanoseconds kNever = std::numeric_limits<Nanoseconds>::max();

  // The time now. It never decreases, and all processes of this machine see the same time. Only
  // differences of times from the same boot have a meaning.
  virtual Nanoseconds Now() = 0;
  // The time now, counted from 1970-01-01 00:00 UTC.
  virtual Nanoseconds SinceEpoch() = 0;

  // Returns when `word` is not `value`, or when Now() reaches `until`. It may also return earlier
  // without a reason, so the caller checks again. A thread that changes the word has to call
  // WakeAll(word) afterwards. That thread may be in any process that shares the word's memory.
  virtual void WaitWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                         Nanoseconds until) = 0;
  // As WaitWhile, but without a word: returns when Now() reaches `until`, or earlier.
  void WaitUntil(Nanoseconds until) {
    const std::atomic<std::uint32_t> never = 0;
    WaitWhile(never, 0, until);
  }
  // As poll(2), but waits until a time instead of for a duration. It may also return 0 earlier, for
  // example after a signal.
  virtual int Poll(std::span<pollfd> descriptors, Nanoseconds until) = 0;

  // While the returned value lives, the calling thread takes part in the time of a SharedClock
  // (perseus/simulation/virtual_gpu/shared_clock.h): the time of the SharedClock then advances only
  // while this thread waits in one of the calls above. Other kinds of clocks return null.
  enum class Part {
    kFollows,
    kPeriodic,  // The thread mostly waits for a time. A delay of a few milliseconds does no harm.
    kLeads,     // While the thread takes part, time may run faster than real time.
    // As kLeads, for all threads of the process. They may also wait in other ways, for example for
    // messages of a training framework. Time advances only while all of them sleep.
    kProcess,
  };
  virtual std::shared_ptr<void> TakePart(Part /*part*/) { return nullptr; }
};

// Wakes every thread of every process that waits in WaitWhile(word, ...).
void WakeAll(const std::atomic<std::uint32_t>& word);

// CLOCK_MONOTONIC.
class RealClock final : public Clock {
 public:
  Nanoseconds Now() override;
  Nanoseconds SinceEpoch() override;
  void WaitWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                 Nanoseconds until) override;
  int Poll(std::span<pollfd> descriptors, Nanoseconds until) override;
};

// CLOCK_MONOTONIC, for code that always runs in real time.
Nanoseconds MonotonicNow();
// The time since 1970-01-01 00:00 UTC, for code that always runs in real time. It may be set back.
Nanoseconds SinceEpoch();

// A clock for tests. Time stands still until Advance or AdvanceTo. A call that waits until time T
// sets the clock to T and returns at once.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(Nanoseconds now = 0) : now_(now) {}

  Nanoseconds Now() override { return now_.load(); }
  Nanoseconds SinceEpoch() override { return now_.load(); }
  void WaitWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                 Nanoseconds until) override {
    if (word.load() == value) AdvanceTo(until);
  }
  int Poll(std::span<pollfd> descriptors, Nanoseconds until) override {
    const int ready = ::poll(descriptors.data(), descriptors.size(), 0);
    if (ready == 0) AdvanceTo(until);
    return ready;
  }

  void Advance(Nanoseconds duration) { now_.fetch_add(duration); }
  // Does nothing if the clock is already past `time`.
  void AdvanceTo(Nanoseconds time) {
    Nanoseconds now = now_.load();
    while (now < time && !now_.compare_exchange_weak(now, time)) {
    }
  }

 private:
  std::atomic<Nanoseconds> now_;
};

}  // namespace perseus
