#include "perseus/runtime/client/driver_gate.h"

#include <atomic>
#include <cstdint>

#include "perseus/base/clock.h"

namespace perseus::client {
namespace {

// A thread does not wait longer than this for a fork. Forks take milliseconds.
constexpr Nanoseconds kLongestFork = kSecond;

std::atomic<std::uint32_t> inside = 0;  // Threads inside a driver.
std::atomic<std::uint32_t> forks = 0;   // Forks that have begun and not ended. 0: the gate is open.
// Threads that forks no longer wait for, because a driver hangs. Never more than those inside.
std::atomic<std::uint32_t> given_up = 0;
// A driver may fork itself: NVML starts a program that loads the kernel module. Such a fork does
// not wait for its own thread.
thread_local std::uint32_t depth = 0;

void StepOut() {
  const std::uint32_t now = inside.fetch_sub(1) - 1;
  // If fewer are inside than hung, one that hung has left.
  std::uint32_t hung = given_up.load();
  while (hung > now && !given_up.compare_exchange_weak(hung, now)) {
  }
  if (forks.load() != 0) WakeAll(inside);
}

}  // namespace

InDriver::InDriver() {
  if (depth++ != 0) return;
  inside.fetch_add(1);
  if (forks.load() == 0) return;
  RealClock clock;
  const Nanoseconds until = clock.Now() + kLongestFork;
  while (clock.Now() < until) {
    StepOut();
    while (const std::uint32_t now = forks.load()) {
      if (clock.Now() >= until) break;
      clock.WaitWhile(forks, now, until);
    }
    inside.fetch_add(1);
    if (forks.load() == 0) return;
  }
}

InDriver::~InDriver() {
  if (--depth == 0) StepOut();
}

void CloseDriverGate() {
  forks.fetch_add(1);
  const std::uint32_t own = depth != 0 ? 1 : 0;
  RealClock clock;
  const Nanoseconds until = clock.Now() + kLongestForkDelay;
  while (true) {
    const std::uint32_t now = inside.load();
    if (now <= own + given_up.load()) return;
    if (clock.Now() >= until) {
      given_up.store(now - own);
      return;
    }
    clock.WaitWhile(inside, now, until);
  }
}

void OpenDriverGateInParent() {
  forks.fetch_sub(1);
  WakeAll(forks);
}

// No other thread exists here.
void OpenDriverGateInChild() {
  inside.store(depth != 0 ? 1 : 0);
  given_up.store(0);
  forks.store(0);
}

}  // namespace perseus::client
