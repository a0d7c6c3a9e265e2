#include "perseus/runtime/client/poll_times.h"

#include <gtest/gtest.h>

namespace perseus::client {
namespace {

constexpr Nanoseconds kUsual = 8 * kMillisecond;

// Looks from `since` on until the event has passed at `end`. Returns the number of looks, and how
// late the last one came.
struct Looks {
  int count = 0;
  Nanoseconds late = 0;
};
Looks LookUntil(PollTimes times, Nanoseconds since, Nanoseconds begin, Nanoseconds end) {
  Looks looks;
  Nanoseconds before = since;
  Nanoseconds now = since;
  while (true) {
    ++looks.count;
    if (now >= end) break;
    if (times.NeedsBegin() && now >= begin) times.Begin(before);
    before = now;
    now = times.After(now);
  }
  looks.late = now - end;
  return looks;
}

TEST(PollTimesTest, LooksAreFineAtTheUsualEnd) {
  // Half of an instruction's time at most, and 3 % earlier or later than usual.
  for (const Nanoseconds wait : {Nanoseconds{0}, 3 * kMillisecond, 50 * kMillisecond}) {
    for (const Nanoseconds lasts : {kUsual - kUsual / 32, kUsual, kUsual + kUsual / 32}) {
      const Looks looks = LookUntil({0, kUsual}, 0, wait, wait + lasts);
      EXPECT_LE(looks.late, PollTimes::kFine) << wait << " " << lasts;
      // While it waits, 4 looks a millisecond. In the instruction, one a millisecond, and fine ones
      // for 1/4 of its time at most.
      EXPECT_LE(looks.count, wait / PollTimes::kCoarse + kUsual / PollTimes::kEarly +
                                 kUsual / 4 / PollTimes::kFine + 3);
    }
  }
}

TEST(PollTimesTest, AnUnusualEndIsSeenLittleLater) {
  for (const Nanoseconds lasts : {kUsual / 2, 2 * kUsual, 100 * kUsual}) {
    const Looks looks = LookUntil({0, kUsual}, 0, 0, lasts);
    EXPECT_LE(looks.late, lasts < kUsual ? PollTimes::kEarly : PollTimes::kCoarse) << lasts;
  }
}

TEST(PollTimesTest, KnowsThatTheUsualEndIsNear) {
  PollTimes times(0, kUsual);
  EXPECT_FALSE(times.EndsWithin(kUsual, 0)) << "it has not begun";
  times.Begin(kMillisecond);
  EXPECT_FALSE(times.EndsWithin(2 * kMillisecond, kUsual - 2 * kMillisecond));
  EXPECT_TRUE(times.EndsWithin(2 * kMillisecond, kUsual - kMillisecond));
}

TEST(PollTimesTest, WithoutAUsualDurationTheDelayIsAFractionOfTheWait) {
  for (const Nanoseconds end : {100 * kMicrosecond, kMillisecond, 100 * kMillisecond}) {
    const Looks looks = LookUntil({0, 0}, 0, 0, end);
    EXPECT_LE(looks.late, std::clamp(end / 16, PollTimes::kFine, PollTimes::kCoarse)) << end;
  }
}

}  // namespace
}  // namespace perseus::client
