#include "perseus/base/time_text.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace perseus {
namespace {

TEST(TimeTextTest, ReadsWhatItWrites) {
  for (const std::int64_t count : {0LL, 1LL, 999LL, 1'796'068'800'123LL, 4'102'444'800'000LL}) {
    const Milliseconds time(count);
    EXPECT_EQ(ParseTime(TimeText(time)), time) << TimeText(time);
  }
  EXPECT_EQ(TimeText(Milliseconds(1'796'068'800'123)), "2026-11-30T20:00:00.123Z");
}

TEST(TimeTextTest, RefusesOtherTexts) {
  for (const char* text : {"", "2026-11-30", "2026-11-30T20:00:00Z", "2026-02-31T20:00:00.000Z",
                           "2026-11-30T20:00:00.000", "2026-11-30T20:00:00.a00Z",
                           "2026-11-30T25:00:00.000Z", " 2026-11-30T20:00:00.000Z", "soon"}) {
    EXPECT_FALSE(ParseTime(text)) << text;
  }
}

}  // namespace
}  // namespace perseus
