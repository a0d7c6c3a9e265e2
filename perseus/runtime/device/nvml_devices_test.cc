#include "perseus/runtime/device/nvml_devices.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/fake_nvml/fake_node.h"

namespace perseus::device {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(NvmlDevices, AreFoundByUuidAtAnyIndex) {
  FakeNode fake;
  const DeviceList list = fake.Open();
  ASSERT_EQ(list.devices.size(), 3U);
  EXPECT_TRUE(list.refused.empty());
  EXPECT_EQ(list.devices[0]->info().uuid, fake.node.Uuid(2));
  EXPECT_EQ(list.devices[1]->info().uuid, fake.node.Uuid(1));
  EXPECT_EQ(list.devices[2]->info().uuid, fake.node.Uuid(0));
  // As nvidia-smi numbers them.
  EXPECT_EQ(list.devices[0]->info().index, 2);
  EXPECT_EQ(list.devices[2]->info().index, 0);
}

TEST(NvmlDevices, DescribeAGpu) {
  FakeNode fake({{}, {.name = "Fake H100", .mig_instances = -1, .is_persistent = false}});
  const DeviceList list = fake.Open();
  const DeviceInfo& info = fake.At(list, 1).info();
  EXPECT_EQ(info.name, "Fake H100");
  EXPECT_EQ(info.backend, "nvml");
  EXPECT_EQ(info.pci_bus_id, "00000000:02:00.0");
  EXPECT_EQ(info.minor_number, 1);
  EXPECT_EQ(info.index, 1);
  EXPECT_EQ(info.is_persistent, false);
  EXPECT_THAT(info.sm_clocks_mhz, ElementsAre(210, 1200, 1305, 1410));
  EXPECT_THAT(info.memory_clocks_mhz, ElementsAre(810, 1215));
  EXPECT_EQ(info.default_power_limit_mw, 400'000);
  EXPECT_EQ(info.least_power_limit_mw, 100'000);
  EXPECT_EQ(info.most_power_limit_mw, 400'000);
  EXPECT_EQ(info.measure_only, "");
}

TEST(NvmlDevices, MigIsRefusedWithItsInstances) {
  FakeNode fake({{}, {.mig_instances = 2}});
  const DeviceList list = fake.Open();
  ASSERT_EQ(list.devices.size(), 1U);
  EXPECT_EQ(list.devices[0]->info().uuid, fake.node.Uuid(0));
  ASSERT_EQ(list.refused.size(), 3U);
  EXPECT_THAT(list.refused[0].what, HasSubstr(fake.node.Uuid(1)));
  EXPECT_THAT(list.refused[0].why, HasSubstr("-mig 0"));
  EXPECT_THAT(list.refused[1].what, HasSubstr("MIG-"));
  EXPECT_THAT(list.refused[2].why, HasSubstr("is a MIG instance of " + fake.node.Uuid(1)));
}

TEST(NvmlDevices, ALostGpuDoesNotHideTheOthers) {
  FakeNode fake;
  fake.node.Lose(1);
  const DeviceList list = fake.Open();
  EXPECT_EQ(list.devices.size(), 2U);
  ASSERT_EQ(list.refused.size(), 1U);
  EXPECT_EQ(list.refused[0].what, "NVML's GPU 1");
  EXPECT_THAT(list.refused[0].why, HasSubstr("GPU is lost (NVML error 15) (see dmesg"));
}

TEST(NvmlDevices, AllowOnlyMeasuringWithoutListedClocks) {
  FakeNode fake({{.sm_clocks_mhz = {}, .memory_clocks_mhz = {}, .default_power_limit_mw = 0}});
  const DeviceList list = fake.Open();
  ASSERT_EQ(list.devices.size(), 1U);
  const DeviceInfo& info = list.devices[0]->info();
  EXPECT_THAT(info.measure_only, HasSubstr("lists no clocks"));
  EXPECT_EQ(info.default_power_limit_mw, 0);
}

TEST(NvmlDevices, AMissingDriverIsAnErrorWithARemedy) {
  FakeNode fake;
  fake.node.UnloadDriver();
  Result<DeviceList> list = fake.TryOpen();
  ASSERT_FALSE(list);
  EXPECT_EQ(list.error().kind, ErrorKind::kSystem);
  EXPECT_THAT(list.error().message, HasSubstr("Driver Not Loaded (NVML error 9)"));
  EXPECT_THAT(list.error().message, HasSubstr("modprobe nvidia"));

  list = fake.TryOpen("/nonexistent/libnvidia-ml.so.1");
  ASSERT_FALSE(list);
  EXPECT_EQ(list.error().kind, ErrorKind::kSystem);
  EXPECT_THAT(list.error().message, HasSubstr("install NVIDIA's driver"));

  list = fake.TryOpen("libm.so.6");
  ASSERT_FALSE(list);
  EXPECT_THAT(list.error().message, HasSubstr("libm.so.6 lacks nvmlInit_v2"));
}

// An old driver has no energy counter, no memory clock lock and no MIG, and an older function for
// the throttle reasons.
TEST(NvmlDevices, FunctionsThatAnOldDriverLacksAreNotSupported) {
  FakeNode fake;
  const DeviceList list = fake.Open(FAKE_NVML_OLD_LIBRARY);
  ASSERT_EQ(list.devices.size(), 3U);
  Device& device = fake.At(list, 0);
  EXPECT_EQ(device.info().measure_only, "");
  fake.node.Cap(0, 1200, 0x4);
  const DeviceResult<Telemetry> telemetry = device.Read();
  ASSERT_TRUE(telemetry) << telemetry.error().message;
  EXPECT_TRUE(telemetry->is_energy_integrated);
  EXPECT_TRUE(telemetry->limits.Has(ClockLimit::kPowerCap));
  EXPECT_TRUE(device.Apply(Control::kSmClock, Setting{1200, 1200}));
  const DeviceResult<void> memory = device.Apply(Control::kMemoryClock, Setting{1215, 1215});
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().kind, DeviceErrorKind::kNotSupported);
}

}  // namespace
}  // namespace perseus::device
