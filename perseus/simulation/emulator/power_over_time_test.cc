#include "perseus/simulation/emulator/power_over_time.h"

#include <gtest/gtest.h>

namespace perseus::emulator {
namespace {

TEST(PowerOverTime, PeaksInTheWindowOfTheHighestMean) {
  PowerOverTime power(kSecond);
  power.Add(kSecond / 2, 3 * kSecond, 100);               // Windows 0 (half), 1, 2.
  power.Add(2 * kSecond + kSecond / 4, 3 * kSecond, 40);  // Window 2, three quarters.
  EXPECT_DOUBLE_EQ(power.Peak(10 * kSecond, 5), 135);
  EXPECT_DOUBLE_EQ(power.Peak(2 * kSecond, 5), 105);
  EXPECT_DOUBLE_EQ(power.Peak(kSecond, 5), 55);
}

TEST(PowerOverTime, CountsPowerInWindowsWithoutSteps) {
  PowerOverTime power(kSecond);
  power.Add(kSecond / 2, 1'000'000 * kSecond + kSecond / 2, 100);
  EXPECT_DOUBLE_EQ(power.Peak(2'000'000 * kSecond, 0), 100);
}

// The mean of all windows is 70 W.
TEST(PowerOverTime, ALastWindowThatIsCutShortCountsForItsLength) {
  PowerOverTime power(kSecond);
  power.Add(kSecond, kSecond + kSecond / 2, 200);
  EXPECT_DOUBLE_EQ(power.Peak(kSecond + kSecond / 2, 10), 210);
}

TEST(PowerOverTime, IsTheBaseWhereNothingHappens) {
  EXPECT_DOUBLE_EQ(PowerOverTime(7).Peak(3, 12), 12);
}

}  // namespace
}  // namespace perseus::emulator
