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

TEST(ClockLimits, PowerAloneIsToldFromEverythingElse) {
  const auto of = [](std::initializer_list<ClockLimit> some) {
    ClockLimits limits;
    for (const ClockLimit limit : some) limits.Add(limit);
    return limits;
  };
  EXPECT_TRUE(IsAtPowerLimit(of({ClockLimit::kPowerCap})));
  EXPECT_TRUE(IsAtPowerLimit(of({ClockLimit::kPowerCap, ClockLimit::kSetting})));
  EXPECT_FALSE(IsAtPowerLimit({}));
  EXPECT_FALSE(IsAtPowerLimit(of({ClockLimit::kSetting, ClockLimit::kIdle})));
  for (const ClockLimit fault :
       {ClockLimit::kThermal, ClockLimit::kPowerBrake, ClockLimit::kOther}) {
    EXPECT_FALSE(IsAtPowerLimit(of({fault})));
    EXPECT_FALSE(IsAtPowerLimit(of({fault, ClockLimit::kPowerCap})));
    EXPECT_TRUE(IsHeldDown(of({fault})));
  }
  EXPECT_EQ(
      NamesOfHoldingDown(of({ClockLimit::kThermal, ClockLimit::kSetting, ClockLimit::kPowerCap})),
      (std::vector<std::string>{"power", "temperature"}));
}

}  // namespace
}  // namespace perseus::device
