#include "perseus/base/clock.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

namespace perseus {
namespace {

TEST(RealClock, DoesNotWaitForATimeInThePast) {
  RealClock clock;
  std::atomic<std::uint32_t> word = 7;
  const Nanoseconds before = clock.Now();
  clock.WaitWhile(word, 7, before);
  clock.WaitWhile(word, 7, 0);
  clock.WaitWhile(word, 6, std::numeric_limits<Nanoseconds>::max());
  EXPECT_GE(clock.Now(), before);
}

TEST(RealClock, IsWokenByAnotherThread) {
  RealClock clock;
  std::atomic<std::uint32_t> word = 0;
  std::thread other([&] {
    word.store(1);
    WakeAll(word);
  });
  while (word.load() == 0) clock.WaitWhile(word, 0, std::numeric_limits<Nanoseconds>::max());
  other.join();
}

TEST(FakeClock, AWaitAdvancesTheClockToItsEnd) {
  FakeClock clock(100);
  const std::atomic<std::uint32_t> word = 0;
  clock.WaitWhile(word, 0, 250);
  EXPECT_EQ(clock.Now(), 250);
  clock.WaitWhile(word, 1, 300);  // The word is not 1, so this returns at once.
  EXPECT_EQ(clock.Now(), 250);
  clock.AdvanceTo(200);
  EXPECT_EQ(clock.Now(), 250);
  clock.Advance(50);
  EXPECT_EQ(clock.Now(), 300);
}

}  // namespace
}  // namespace perseus
