// A reader that polls more often than the counter changes.
#include "perseus/runtime/client/energy_meter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/support/results.h"
#include "tests/support/virtual_node_fixture.h"

namespace perseus::client {
namespace {

class EnergyMeterTest : public VirtualNodeTest {};

TEST_F(EnergyMeterTest, TellsEachValueOnceAndBetweenWhichLooksItCame) {
  const auto clock = std::make_shared<FakeClock>(kSecond);
  const auto node = ValueOf(virtual_gpu::VirtualNode::Open(Describe(kTwoGpus), clock));
  EnergyMeter meter(std::move(node.Devices().devices.front()), *clock, 1);
  EXPECT_FALSE(meter.Look());  // The time of the first value is unknown.

  std::vector<EnergyReading> readings;
  for (int i = 0; i < 100; ++i) {
    clock->Advance(5 * kMillisecond);
    if (const auto reading = meter.Look()) readings.push_back(*reading);
  }
  // 500 ms of a counter that ticks every 20 ms: 25 ticks.
  ASSERT_EQ(readings.size(), 25U);
  for (std::size_t i = 0; i < readings.size(); ++i) {
    EXPECT_EQ(readings[i].until - readings[i].after, 5 * kMillisecond);
    if (i == 0) continue;
    EXPECT_EQ(readings[i].until - readings[i - 1].until, 20 * kMillisecond);
    EXPECT_GT(readings[i].energy_j, readings[i - 1].energy_j);
  }
}

// The counter changes every 20 ms. Reads every 10 ms would all have the same error of up to 5 ms.
TEST_F(EnergyMeterTest, TheErrorsOfTheTimesAverageOut) {
  constexpr Nanoseconds kPeriod = 20 * kMillisecond;
  const auto clock = std::make_shared<FakeClock>(kSecond);
  const auto node = ValueOf(virtual_gpu::VirtualNode::Open(Describe(kTwoGpus), clock));
  // When the counter of the first GPU changes, within a period, by frequent reads.
  Nanoseconds change = 0;
  {
    EnergyMeter meter(std::move(node.Devices().devices.front()), *clock, 1);
    while (true) {
      clock->Advance(kMillisecond / 10);
      if (meter.Look()) break;
    }
    change = clock->Now() % kPeriod;
  }
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    clock->Advance(static_cast<Nanoseconds>(seed) * 7 * kMillisecond / 3);
    EnergyMeter meter(std::move(node.Devices().devices.front()), *clock, seed);
    double error_s = 0;
    int changes = 0;
    while (changes < 1000) {
      if (const auto reading = meter.Look()) {
        // As the profiler places it: in the middle.
        const Nanoseconds middle = (reading->after + reading->until) / 2;
        const Nanoseconds late = (middle - change + kPeriod + kPeriod / 2) % kPeriod - kPeriod / 2;
        error_s += ToSeconds(late) / 1000;
        ++changes;
      }
      const Nanoseconds pause = meter.Pause();
      EXPECT_GE(pause, EnergyMeter::kLeastPause);
      EXPECT_LE(pause, EnergyMeter::kMostPause);
      clock->Advance(pause);
    }
    // The errors of single changes have a standard deviation of 3 ms.
    EXPECT_NEAR(error_s, 0, 5 * 0.003 / std::sqrt(1000.0)) << seed;
  }
}

// A device that counts its calls.
class CountingDevice final : public device::Device {
 public:
  struct Counts {
    int reads = 0;
    int energies = 0;
    bool is_at_power_limit = false;
  };
  explicit CountingDevice(Counts& counts) : counts_(counts) {}

  const device::DeviceInfo& info() const override { return info_; }
  device::DeviceResult<device::Telemetry> Read() override {
    device::Telemetry telemetry;
    telemetry.temperature_c = 50 + counts_.reads++;
    telemetry.energy_j = ++energy_j_;
    telemetry.sm_clock_mhz = 1290;
    if (counts_.is_at_power_limit) telemetry.limits.Add(device::ClockLimit::kPowerCap);
    return telemetry;
  }
  device::DeviceResult<double> ReadEnergy() override {
    ++counts_.energies;
    return ++energy_j_;
  }
  device::DeviceResult<device::SettingReading> ReadSetting(device::Control) override {
    return device::SettingReading{};
  }
  device::DeviceResult<void> Apply(device::Control,
                                   const std::optional<device::Setting>&) override {
    return {};
  }
  device::DeviceResult<device::Effect> ReadEffect(device::Control,
                                                  const std::optional<device::Setting>&) override {
    return device::Effect{};
  }

 private:
  Counts& counts_;
  device::DeviceInfo info_;
  double energy_j_ = 0;
};

TEST_F(EnergyMeterTest, ReadsTheClockOnlyAtThePowerLimit) {
  CountingDevice::Counts counts;
  FakeClock clock(kSecond);
  EnergyMeter meter(std::make_unique<CountingDevice>(counts), clock, 1);
  EXPECT_FALSE(meter.ReachedClock());
  meter.Look();
  EXPECT_FALSE(meter.ReachedClock());
  counts.is_at_power_limit = true;
  EXPECT_FALSE(meter.ReachedClock()) << "before the next look at everything";
  clock.Advance(kSecond);
  meter.Look();
  clock.Advance(10 * kMillisecond);
  const auto reading = meter.ReachedClock().value();
  EXPECT_EQ(reading.at, clock.Now());
  EXPECT_EQ(reading.sm_clock_mhz, 1290);
}

TEST_F(EnergyMeterTest, AsksForAllElseOnceASecond) {
  CountingDevice::Counts counts;
  FakeClock clock(kSecond);
  EnergyMeter meter(std::make_unique<CountingDevice>(counts), clock, 1);
  EXPECT_FALSE(meter.Look());
  for (int i = 1; i <= 300; ++i) {
    clock.Advance(10 * kMillisecond);
    EXPECT_DOUBLE_EQ(meter.Look().value().energy_j, 1 + i);
    EXPECT_DOUBLE_EQ(meter.telemetry().energy_j, 1 + i);
  }
  EXPECT_EQ(counts.reads, 4);  // At 0, 1, 2 and 3 s.
  EXPECT_EQ(counts.energies, 297);
  EXPECT_EQ(meter.telemetry().temperature_c, 53);
}

TEST_F(EnergyMeterTest, WithoutADeviceThereIsNothing) {
  FakeClock clock;
  EnergyMeter meter(nullptr, clock, 1);
  EXPECT_EQ(meter.info(), nullptr);
  EXPECT_FALSE(meter.Look());
  EXPECT_TRUE(meter.trouble().empty());
}

}  // namespace
}  // namespace perseus::client
