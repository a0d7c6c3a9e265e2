#include "perseus/base/clock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace perseus {
namespace {

// The kernel uses the word itself as the futex, so the atomic must be a plain 32-bit integer.
static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

Nanoseconds TimeOf(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

}  // namespace

void WakeAll(const std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// The vDSO, a library that the kernel maps into every process, answers without a system call.
Nanoseconds MonotonicNow() { return TimeOf(CLOCK_MONOTONIC); }
Nanoseconds SinceEpoch() { return TimeOf(CLOCK_REALTIME); }

Nanoseconds RealClock::Now() { return MonotonicNow(); }
Nanoseconds RealClock::SinceEpoch() { return perseus::SinceEpoch(); }

void RealClock::WaitWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                          Nanoseconds until) {
  if (until <= 0) return;
  const timespec deadline{until / kSecond, until % kSecond};
  // FUTEX_WAIT_BITSET takes an absolute time. FUTEX_WAIT takes a duration.
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, value, &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
}

int RealClock::Poll(std::span<pollfd> descriptors, Nanoseconds until) {
  const Nanoseconds left = std::max<Nanoseconds>(0, until - Now());
  const timespec timeout{left / kSecond, left % kSecond};
  return std::max(0, ppoll(descriptors.data(), descriptors.size(),
                           until == kNever ? nullptr : &timeout, nullptr));
}

}  // namespace perseus
