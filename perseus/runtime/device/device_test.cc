#include "perseus/runtime/device/device.h"

#include <gtest/gtest.h>

namespace perseus::device {
namespace {

TEST(Describe, SettingsHaveTheirUnits) {
  EXPECT_EQ(Describe(Control::kSmClock, Setting{1410, 1410}), "1410 MHz");
  EXPECT_EQ(Describe(Control::kMemoryClock, Setting{800, 1215}), "800-1215 MHz");
  EXPECT_EQ(Describe(Control::kPowerLimit, Setting{300'500, 300'500}), "300.5 W");
  EXPECT_EQ(Describe(Control::kPowerLimit, std::nullopt), "the driver's default");
}

TEST(Describe, NamesAllLimitsOfAClock) {
  ClockLimits limits;
  EXPECT_EQ(Describe(limits), "");
  limits.Add(ClockLimit::kThermal);
  limits.Add(ClockLimit::kPowerCap);
  EXPECT_EQ(Describe(limits), "power limit, too hot");
}

}  // namespace
}  // namespace perseus::device
