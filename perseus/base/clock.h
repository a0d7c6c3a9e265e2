// The time that passes, as something that can be passed in: so that tests wait for nothing.
//
// Thread safety: all calls may come from several threads at a time.
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

  // A moment that does not come.
  static constexpr Nanoseconds kNever = std::numeric_limits<Nanoseconds>::max();

  // Never goes back. The same for all processes of this machine, from one boot to the next.
  virtual Nanoseconds Now() = 0;
  // The same moment as time since 1970.
  virtual Nanoseconds SinceEpoch() = 0;

  // Returns when `word` is not `value`, when it is `until`, or earlier for no reason: look again.
  // Whoever changes the word calls WakeAll(word) after it, from any process that shares its memory.
  virtual void WaitWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                         Nanoseconds until) = 0;
  // As poll(2), but until a moment. Also returns 0 earlier for no reason, for a signal for
  // instance.
  virtual int Poll(std::span<pollfd> descriptors, Nanoseconds until) = 0;

  // While the returned value lives, the calling thread takes part in the time of a SharedClock
  // (perseus/simulation/virtual_gpu/shared_clock.h), which then stands still unless the thread
  // waits in one of the calls above. Null with clocks that go by themselves.
  enum class Part {
    kFollows,
    kPeriodic,  // Waits for little but time, and a few milliseconds more do not matter.
    kLeads,     // While it takes part, time need not go at the pace of real time.
  };
  virtual std::shared_ptr<void> TakePart(Part /*part*/) { return nullptr; }
};

// Ends WaitWhile(word, ...) of every thread of every process.
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

// CLOCK_MONOTONIC, for code that nobody runs on another clock.
Nanoseconds MonotonicNow();

// Stands still until told to go on; who waits for a moment is taken there at once.
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
