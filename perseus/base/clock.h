// The time that passes, as something that can be passed in: so that tests wait for nothing.
//
// Thread safety: all calls may come from several threads at a time.
#pragma once

#include <atomic>
#include <cstdint>

#include "perseus/base/units.h"

namespace perseus {

class Clock {
 public:
  virtual ~Clock() = default;
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  // Never goes back. The same for all processes of this machine, from one boot to the next.
  virtual Nanoseconds Now() = 0;

  // Returns when `word` is not `value`, when it is `until`, or earlier for no reason: look again.
  // Whoever changes the word calls WakeAll(word) after it, from any process that shares its memory.
  virtual void WaitWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                         Nanoseconds until) = 0;
};

// Ends WaitWhile(word, ...) of every thread of every process.
void WakeAll(const std::atomic<std::uint32_t>& word);

// CLOCK_MONOTONIC.
class RealClock final : public Clock {
 public:
  Nanoseconds Now() override;
  void WaitWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                 Nanoseconds until) override;
};

// CLOCK_MONOTONIC, for code that nobody runs on another clock.
Nanoseconds MonotonicNow();

// Stands still until told to go on; who waits for a moment is taken there at once.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(Nanoseconds now = 0) : now_(now) {}

  Nanoseconds Now() override { return now_.load(); }
  void WaitWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                 Nanoseconds until) override {
    if (word.load() == value) AdvanceTo(until);
  }

  void Advance(Nanoseconds duration) { now_.fetch_add(duration); }
  // Does nothing if it is later already.
  void AdvanceTo(Nanoseconds time) {
    Nanoseconds now = now_.load();
    while (now < time && !now_.compare_exchange_weak(now, time)) {
    }
  }

 private:
  std::atomic<Nanoseconds> now_;
};

}  // namespace perseus
