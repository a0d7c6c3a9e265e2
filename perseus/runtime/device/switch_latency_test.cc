#include "perseus/runtime/device/switch_latency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perseus::device {
namespace {

using ::testing::ElementsAre;

// Needs 2 ms for a higher clock and 10 ms for a lower one. Never reaches 1000 MHz.
class SlowGpu : public Device {
 public:
  explicit SlowGpu(FakeClock& clock, bool is_idle = false) : clock_(clock), is_idle_(is_idle) {
    info_.sm_clocks_mhz = {900, 1000, 1100, 1200, 1300, 1410};
  }
  const DeviceInfo& info() const override { return info_; }
  DeviceResult<Telemetry> Read() override {
    Telemetry telemetry;
    if (is_idle_) return telemetry;
    telemetry.sm_clock_mhz = clock_.Now() >= lands_at_ && wanted_ != 1000 ? wanted_ : had_;
    return telemetry;
  }
  DeviceResult<SettingReading> ReadSetting(Control) override { return SettingReading{}; }
  DeviceResult<void> Apply(Control, const std::optional<Setting>& setting) override {
    had_ = wanted_;
    wanted_ = setting->upper;
    lands_at_ = clock_.Now() + (wanted_ > had_ ? 2 : 10) * kMillisecond;
    return {};
  }
  DeviceResult<Effect> ReadEffect(Control, const std::optional<Setting>&) override {
    return Effect{};
  }

 private:
  FakeClock& clock_;
  bool is_idle_;
  DeviceInfo info_;
  int had_ = 0;
  int wanted_ = 1410;
  Nanoseconds lands_at_ = 0;
};

TEST(MeasureSwitchLatency, IsTheTimeUntilTheClockChanges) {
  FakeClock clock;
  SlowGpu gpu(clock);
  const auto measured = MeasureSwitchLatency(gpu, {900, 1200}, 5, 1000 * kMillisecond, clock);
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->unseen, 0);
  ASSERT_EQ(measured->samples.size(), 9U);  // The first switch starts from an unknown clock.
  EXPECT_EQ(measured->samples[0].from_mhz, 900);
  EXPECT_EQ(measured->samples[0].to_mhz, 1200);
  // The clock is read every 0.2 ms.
  EXPECT_EQ(measured->Percentile(0.5), 2 * kMillisecond);
  EXPECT_EQ(measured->Percentile(1), 10 * kMillisecond);
}

TEST(MeasureSwitchLatency, AClockThatIsNeverReachedIsCountedAndNotMeasured) {
  FakeClock clock;
  SlowGpu gpu(clock);
  const auto measured = MeasureSwitchLatency(gpu, {1200, 1000}, 3, 50 * kMillisecond, clock);
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->unseen, 3);
  EXPECT_EQ(measured->samples.size(), 2U);
}

TEST(MeasureSwitchLatency, GivesUpOnAnIdleGpu) {
  FakeClock clock;
  SlowGpu gpu(clock, /*is_idle=*/true);
  const auto measured = MeasureSwitchLatency(gpu, {1000, 1200}, 30, 50 * kMillisecond, clock);
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->unseen, 3);
  EXPECT_TRUE(measured->samples.empty());
}

TEST(ClocksToMeasure, AreClocksOfTheGpuWithoutRepetition) {
  FakeClock clock;
  SlowGpu gpu(clock);
  EXPECT_THAT(ClocksToMeasure(gpu.info()), ElementsAre(1410, 1100, 1300, 1200));
  DeviceInfo info;
  info.sm_clocks_mhz = {900};
  EXPECT_TRUE(ClocksToMeasure(info).empty());
  info.sm_clocks_mhz = {900, 1000};
  EXPECT_THAT(ClocksToMeasure(info), ElementsAre(1000, 900));
}

}  // namespace
}  // namespace perseus::device
