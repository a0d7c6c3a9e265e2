#include "perseus/cli/flags/cap_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace perseus::cli {
namespace {

using ::testing::HasSubstr;

TEST(CapFlagsTest, ReadsPowers) {
  for (const char* text : {"1500000", "1500000W", "1500 kW", "1500kW", "1.5MW", "1.5 MW"}) {
    EXPECT_EQ(ParsePower(text).value_or(0), 1.5e6) << text;
  }
}

TEST(CapFlagsTest, APowerWithAnotherUnitIsRefused) {
  for (const char* text : {"", "MW", "2mW", "2 mw", "2GW", "2 kWh", "-1kW", "0", "nan", "1e999",
                           "2MW 3kW", "1e30MW", "2  MW", "2 "}) {
    const auto refused = ParsePower(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_THAT(refused.error().Message(), HasSubstr("with W, kW or MW"));
  }
}

// In a zone with summer time. It began on 2026-03-29 at 01:00 UTC.
class LaterTimeTest : public testing::Test {
 protected:
  LaterTimeTest() { Use("Europe/Berlin"); }
  ~LaterTimeTest() override { Use("UTC"); }
  static void Use(const char* zone) {
    ::setenv("TZ", zone, 1);
    ::tzset();
  }
  static std::int64_t Hour(int hour, int minute = 0, int second = 0) {
    return kMidnight + hour * 3'600 + minute * 60 + second;
  }
  static constexpr std::int64_t kMidnight = 1'774'652'400;  // 2026-03-28 00:00 in Berlin.
};

TEST_F(LaterTimeTest, ReadsTimesOfDay) {
  EXPECT_EQ(ParseLaterTime("20:00", Hour(19, 59, 59)).value_or(0), Hour(20));
  // On the next day, which has 23 hours.
  EXPECT_EQ(ParseLaterTime("20:00", Hour(20)).value_or(0), Hour(20 + 23));
  EXPECT_EQ(ParseLaterTime("0:30", Hour(20)).value_or(0), Hour(24, 30));
}

TEST_F(LaterTimeTest, ReadsDates) {
  for (const char* text : {"2026-03-28T20:00", "2026-03-28 20:00", "2026-03-28T20:00:00",
                           "2026-03-28T19:00Z", "2026-03-28T19:00:00Z", "2026-03-28T21:00+02:00"}) {
    EXPECT_EQ(ParseLaterTime(text, Hour(12)).value_or(0), Hour(20)) << text;
  }
}

TEST_F(LaterTimeTest, ReadsDurations) {
  for (const char* text : {"2h", "120m", "120 min", "7200s", "2 h"}) {
    EXPECT_EQ(ParseLaterTime(text, Hour(12)).value_or(0), Hour(14)) << text;
  }
  EXPECT_EQ(ParseLaterTime("1d", Hour(12)).value_or(0), Hour(36));
}

TEST_F(LaterTimeTest, RefusesOtherTexts) {
  for (const char* text :
       {"", "soon", "25:00", "20", "20:0x", "2026-03-28", "2026-13-28T20:00", "2 weeks", "-2h",
        "0h", "0.1s", "9999999d", "2126-03-28T20:00", "2026-03-28T20:00 CET"}) {
    const auto refused = ParseLaterTime(text, Hour(12));
    ASSERT_FALSE(refused) << text;
    EXPECT_THAT(refused.error().Message(), HasSubstr("such as 90m, 2h or 1d"));
  }
  for (const char* text : {"2026-03-28T12:00", "2025-03-28T20:00Z"}) {
    EXPECT_THAT(ParseLaterTime(text, Hour(12)).error().Message(),
                HasSubstr("is not in the future (give a later time)"));
  }
}

}  // namespace
}  // namespace perseus::cli
