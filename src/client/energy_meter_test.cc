// What a counter that ticks now and then tells who looks more often.
#include "perseus/client/energy_meter.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "virtual_node_fixture.h"

namespace perseus {
namespace {

class EnergyMeterTest : public VirtualNodeTest {};

TEST_F(EnergyMeterTest, TellsEachValueOnceAndBetweenWhichLooksItCame) {
  const auto clock = std::make_shared<FakeClock>(kSecond);
  const auto node = VirtualNode::Open(Describe(kTwoGpus), clock);
  ASSERT_TRUE(node) << node.error().message;
  EnergyMeter meter(std::move(node->Devices().devices.front()), *clock);
  EXPECT_FALSE(meter.Look());  // When the first value came to be is not known.

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

TEST_F(EnergyMeterTest, WithoutADeviceThereIsNothing) {
  FakeClock clock;
  EnergyMeter meter(nullptr, clock);
  EXPECT_EQ(meter.info(), nullptr);
  EXPECT_FALSE(meter.Look());
  EXPECT_TRUE(meter.trouble().empty());
}

}  // namespace
}  // namespace perseus
