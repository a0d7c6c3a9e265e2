#include "perseus/runtime/device/open_devices.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstring>
#include <memory>
#include <utility>

#include "perseus/base/units.h"
#include "perseus/runtime/device/rocm_api.h"
#include "tests/fake_rocm/fake_rocm.h"
#include "tests/support/results.h"

namespace perseus::device {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Keeps the fake library loaded and resets its node.
class RocmTest : public testing::Test {
 protected:
  RocmTest()
      : library_(::dlopen(FAKE_ROCM_LIBRARY, RTLD_NOW), [](void* opened) { ::dlclose(opened); }),
        node_(
            *reinterpret_cast<fake_rocm::Node* (*)()>(::dlsym(library_.get(), "FakeRocmNode"))()) {
    node_ = {};
    node_.count = 2;
    node_.gpus[0].unique_id = 0xbeef;
    node_.gpus[0].pci_id = 0xc100;
    node_.gpus[1].unique_id = 0xabcd;
  }

  DeviceList Open() {
    Result<DeviceList> list = OpenRocmDevices(FAKE_ROCM_LIBRARY, [now = now_] { return *now; });
    if (list) return *std::move(list);
    ADD_FAILURE() << list.error().Message();
    return {};
  }

  // Reads all GPUs every 100 ms, while the counter of each counts its power.
  void Run(const DeviceList& list, Nanoseconds time) {
    for (const Nanoseconds end = *now_ + time; *now_ < end;) {
      *now_ += 100 * kMillisecond;
      for (fake_rocm::Gpu& gpu : node_.gpus) {
        gpu.energy_count += static_cast<std::uint64_t>(static_cast<double>(gpu.power_uw) / 153);
      }
      for (const auto& device : list.devices) EXPECT_TRUE(device->Read());
    }
  }

  std::shared_ptr<void> library_;
  fake_rocm::Node& node_;
  std::shared_ptr<Nanoseconds> now_ = std::make_shared<Nanoseconds>(0);
};

TEST_F(RocmTest, DescribesAGpu) {
  const DeviceList list = Open();
  ASSERT_EQ(list.devices.size(), 2U);
  EXPECT_EQ(list.devices[0]->info().uuid, "GPU-000000000000abcd");
  const DeviceInfo& info = list.devices[1]->info();
  EXPECT_EQ(info.uuid, "GPU-000000000000beef");
  EXPECT_EQ(info.name, "Fake MI250");
  EXPECT_EQ(info.backend, "rocm");
  EXPECT_EQ(info.pci_bus_id, "0000:c1:00.0");
  EXPECT_EQ(info.sm_clocks_mhz.front(), 500);
  EXPECT_EQ(info.sm_clocks_mhz.back(), 1700);
  EXPECT_EQ(info.sm_clocks_mhz.size(), 25U);
  EXPECT_EQ(info.default_power_limit_mw, 500'000);
  EXPECT_EQ(info.most_power_limit_mw, 560'000);
  EXPECT_EQ(info.measure_only, "");
}

TEST_F(RocmTest, ClocksAreLockedReadBackAndUnlocked) {
  const DeviceList list = Open();
  Device& device = *list.devices[1];
  EXPECT_TRUE(device.ReadSetting(Control::kSmClock)->is_known);
  for (const Setting& setting : {Setting{1200, 1400}, Setting{1200, 1200}, Setting{500, 500}}) {
    ASSERT_TRUE(device.Apply(Control::kSmClock, setting));
    EXPECT_EQ(node_.gpus[0].level, 3);
    EXPECT_EQ(device.ReadEffect(Control::kSmClock, std::nullopt)->state, EffectState::kPending);
    EXPECT_EQ(device.ReadSetting(Control::kSmClock)->setting, setting);
    EXPECT_EQ(device.ReadEffect(Control::kSmClock, setting)->state, EffectState::kInEffect);
  }
  ASSERT_TRUE(device.Apply(Control::kSmClock, std::nullopt));
  EXPECT_EQ(node_.gpus[0].level, 0);
  EXPECT_EQ(device.ReadEffect(Control::kSmClock, std::nullopt)->state, EffectState::kInEffect);
  EXPECT_EQ(node_.gpus[1].changes, 0);
}

TEST_F(RocmTest, PowerCapIsInMilliwatts) {
  const DeviceList list = Open();
  Device& device = *list.devices[1];
  const Setting cap = {300'000, 300'000};
  ASSERT_TRUE(device.Apply(Control::kPowerLimit, cap));
  EXPECT_EQ(node_.gpus[0].cap_uw, 300'000'000U);
  EXPECT_EQ(device.ReadSetting(Control::kPowerLimit)->setting, cap);
  ASSERT_TRUE(device.Apply(Control::kPowerLimit, std::nullopt));
  EXPECT_EQ(device.ReadSetting(Control::kPowerLimit)->setting, std::nullopt);
}

TEST_F(RocmTest, TelemetryHasItsUnits) {
  node_.gpus[1].has_long_frequencies = true;
  node_.gpus[1].has_average_power = false;
  for (fake_rocm::Gpu& gpu : node_.gpus) {
    gpu.energy_count = 1'000'000;
    gpu.sm_mhz = 1234;
  }
  const DeviceList list = Open();
  for (const auto& device : list.devices) {
    const Telemetry telemetry = ValueOf(device->Read());
    EXPECT_EQ(telemetry.scope, PowerScope::kGpu);
    EXPECT_DOUBLE_EQ(telemetry.power_w.value(), 300);
    EXPECT_FALSE(telemetry.energy_j) << "the counter is on trial";
    EXPECT_EQ(telemetry.temperature_c, 66);
    EXPECT_EQ(telemetry.sm_clock_mhz, 1234);
    EXPECT_EQ(telemetry.memory_clock_mhz, std::nullopt) << "not reported";
  }
  Run(list, 3 * kSecond);
  for (const auto& device : list.devices) {
    const Telemetry telemetry = ValueOf(device->Read());
    EXPECT_EQ(telemetry.counter, CounterState::kUsed);
    EXPECT_NEAR(telemetry.energy_j.value(), 15.3 + 900, 0.1) << "the resolution is a float";
  }
}

// The first die reports the power and the energy of both. The second one reports nothing.
TEST_F(RocmTest, TheFirstDieOfAnMi250xReportsBoth) {
  node_.gpus[1].power_uw = 0;
  const DeviceList list = Open();
  Run(list, 4 * kSecond);
  const Telemetry first = ValueOf(list.devices[1]->Read());
  EXPECT_EQ(first.scope, PowerScope::kModule);
  EXPECT_EQ(first.counter, CounterState::kUsed);
  EXPECT_THAT(DescribeEnergy(first), HasSubstr("its module, which has another GPU too"));
  const Telemetry second = ValueOf(list.devices[0]->Read());
  EXPECT_EQ(second.scope, PowerScope::kGpu);
  EXPECT_FALSE(second.power_w) << "unknown, not 0";
  EXPECT_FALSE(second.energy_j);
  EXPECT_EQ(DescribeEnergy(second),
            "its energy counter stands still: its energy is unknown, because the driver does not "
            "report its power");
}

TEST_F(RocmTest, AFrozenCounterIsReplacedByThePower) {
  const DeviceList list = Open();
  for (int i = 0; i < 40; ++i, *now_ += 100 * kMillisecond) ASSERT_TRUE(list.devices[0]->Read());
  const double begin_j = list.devices[0]->Read()->energy_j.value();
  EXPECT_EQ(list.devices[0]->Read()->counter, CounterState::kStandsStill);
  *now_ += 2 * kSecond;
  EXPECT_DOUBLE_EQ(list.devices[0]->Read()->energy_j.value() - begin_j, 600);
}

// ROCm/amdsmi issue 115: 4750896266 -> 4736943791.
TEST_F(RocmTest, ACounterThatFallsOnceIsCountedAndUsed) {
  for (fake_rocm::Gpu& gpu : node_.gpus) gpu.energy_count = 4'750'896'266;
  const DeviceList list = Open();
  Run(list, 3 * kSecond);
  EXPECT_NEAR(list.devices[0]->Read()->energy_j.value(), 72'689 + 900, 1);
  node_.gpus[1].energy_count -= 13'952'475;
  const Telemetry after = ValueOf(list.devices[0]->Read());
  EXPECT_EQ(after.energy_j, 0);
  EXPECT_EQ(after.counter_falls, 1U);
  EXPECT_EQ(after.counter, CounterState::kUsed);
}

TEST_F(RocmTest, PartitionsOfOneGpuAreRefused) {
  node_.count = 3;
  node_.gpus[1].unique_id = node_.gpus[2].unique_id = 0xbeef;
  node_.gpus[0].unique_id = 0xabcd;
  const DeviceList list = Open();
  ASSERT_EQ(list.devices.size(), 1U);
  EXPECT_EQ(list.devices[0]->info().uuid, "GPU-000000000000abcd");
  ASSERT_EQ(list.refused.size(), 2U);
  EXPECT_EQ(list.refused[1].what, "ROCm SMI's GPU 2");
  EXPECT_EQ(list.refused[1].uuid, "GPU-000000000000beef");
  EXPECT_THAT(list.refused[1].why,
              HasSubstr("one of 2 partitions of GPU-000000000000beef, which share one clock"));
}

TEST_F(RocmTest, IntegratesPowerWithoutAnEnergyCounter) {
  node_.gpus[1].has_energy_counter = false;
  const DeviceList list = Open();
  EXPECT_EQ(list.devices[0]->Read()->counter, CounterState::kNone);
  *now_ += 2 * kSecond;
  EXPECT_DOUBLE_EQ(list.devices[0]->Read()->energy_j.value(), 600);
}

TEST_F(RocmTest, PerformanceLevelsAloneAllowOnlyMeasuring) {
  node_.gpus[1].has_clock_range = false;
  const DeviceList list = Open();
  EXPECT_THAT(list.devices[0]->info().measure_only, HasSubstr("performance levels only"));
  EXPECT_THAT(list.devices[0]->Apply(Control::kSmClock, Setting{500, 500}),
              FailsAs(DeviceErrorKind::kNotSupported));
  EXPECT_EQ(node_.gpus[1].changes, 0);
  EXPECT_TRUE(list.devices[0]->Read());
  node_.gpus[1].level = 2;
  EXPECT_FALSE(list.devices[0]->ReadSetting(Control::kSmClock)->is_known);
  EXPECT_THAT(list.devices[0]->ReadSetting(Control::kSmClock)->hint,
              HasSubstr("performance level is 2"));
}

// AMD Instinct from MI200 on.
TEST_F(RocmTest, PerformanceDeterminismIsAHighestClock) {
  for (fake_rocm::Gpu& gpu : node_.gpus) {
    gpu.name = "AMD Instinct MI300X";
    gpu.has_clock_range = false;
    gpu.has_determinism = true;
  }
  node_.gpus[1].reports_range = false;
  node_.gpus[1].sm_mhz = 1190;
  const DeviceList list = Open();
  for (const auto& device : list.devices) {
    const fake_rocm::Gpu& gpu = node_.gpus[device->info().index.value()];
    EXPECT_EQ(device->info().measure_only, "");
    EXPECT_EQ(device->info().sm_clocks_mhz.front(), 500);
    EXPECT_EQ(device->info().sm_clocks_mhz.back(), 1700);
    const Setting setting{1200, 1200};
    EXPECT_EQ(device->ReadSetting(Control::kSmClock)->setting, std::nullopt);
    ASSERT_TRUE(device->Apply(Control::kSmClock, setting));
    EXPECT_EQ(gpu.level, 8);
    EXPECT_EQ(gpu.range_mhz[1], 1200U);
    EXPECT_EQ(device->ReadEffect(Control::kSmClock, setting)->state, EffectState::kInEffect);
    const SettingReading reading = ValueOf(device->ReadSetting(Control::kSmClock));
    EXPECT_EQ(reading.is_known, gpu.reports_range);
    EXPECT_EQ(reading.setting, gpu.reports_range ? std::optional(setting) : std::nullopt);
    EXPECT_EQ(reading.is_certain, !gpu.reports_range) << "a lock, but not which one";
    EXPECT_THAT(device->Apply(Control::kSmClock, Setting{800, 1200}),
                FailsAs(DeviceErrorKind::kInvalid, HasSubstr("has no lowest clock")));
    ASSERT_TRUE(device->Apply(Control::kSmClock, std::nullopt));
    EXPECT_EQ(gpu.level, 0);
    EXPECT_TRUE(device->ReadSetting(Control::kSmClock)->is_known);
  }
  EXPECT_EQ(list.devices[0]->ReadEffect(Control::kSmClock, Setting{1100, 1100})->state,
            EffectState::kPending)
      << "the clock is above it";
}

TEST_F(RocmTest, AnInstinctWithoutListedClocksHasItsOwnRemedy) {
  node_.gpus[1].name = "AMD Instinct MI300X";
  node_.gpus[1].has_clock_range = false;
  node_.gpus[1].has_frequencies = false;
  const DeviceList list = Open();
  EXPECT_THAT(list.devices[0]->info().measure_only,
              testing::AllOf(HasSubstr("lists no clocks for performance determinism"),
                             testing::Not(HasSubstr("ppfeaturemask"))));
}

TEST_F(RocmTest, EachFaultHasItsKind) {
  struct Row {
    std::uint32_t code;
    DeviceErrorKind kind;
  };
  const Row kRows[] = {
      {1, DeviceErrorKind::kInvalid},      {2, DeviceErrorKind::kNotSupported},
      {3, DeviceErrorKind::kFailed},       {4, DeviceErrorKind::kPermission},
      {7, DeviceErrorKind::kInvalid},      {8, DeviceErrorKind::kGone},
      {9, DeviceErrorKind::kNotSupported}, {10, DeviceErrorKind::kGone},
      {16, DeviceErrorKind::kFailed},      {0xffffffff, DeviceErrorKind::kFailed},
  };
  const DeviceList list = Open();
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.code);
    node_.gpus[1].fault = row.code;
    for (const auto& [control, setting] :
         {std::pair(Control::kSmClock, Setting{1200, 1200}),
          std::pair(Control::kPowerLimit, Setting{300'000, 300'000})}) {
      EXPECT_THAT(list.devices[0]->Apply(control, setting), FailsAs(row.kind));
    }
    node_.gpus[1].fault = 0;
    EXPECT_TRUE(list.devices[0]->Apply(Control::kSmClock, std::nullopt));
  }
}

TEST_F(RocmTest, InvalidSettingsNeverReachTheDriver) {
  const DeviceList list = Open();
  for (const auto& [control, setting] : {std::pair(Control::kSmClock, Setting{50, 50}),
                                         std::pair(Control::kSmClock, Setting{1400, 1200}),
                                         std::pair(Control::kPowerLimit, Setting{1000, 1000})}) {
    EXPECT_THAT(list.devices[0]->Apply(control, setting), FailsAs(DeviceErrorKind::kInvalid));
  }
  EXPECT_EQ(list.devices[0]->Apply(Control::kMemoryClock, Setting{1200, 1200}).error().kind,
            DeviceErrorKind::kNotSupported);
  EXPECT_EQ(node_.gpus[1].changes, 0);
}

// The order of GPUs may change with a reload.
TEST_F(RocmTest, FindsItsGpuAgainAfterAReload) {
  const DeviceList list = Open();
  node_.is_driver_gone = true;
  EXPECT_EQ(list.devices[0]->Read().error().kind, DeviceErrorKind::kGone);
  EXPECT_EQ(list.devices[0]->Read().error().kind, DeviceErrorKind::kGone);
  node_.is_driver_gone = false;
  std::swap(node_.gpus[0], node_.gpus[1]);
  ASSERT_TRUE(list.devices[0]->Apply(Control::kPowerLimit, Setting{300'000, 300'000}));
  EXPECT_EQ(node_.gpus[0].cap_uw, 300'000'000U) << "0xabcd";
  EXPECT_EQ(node_.gpus[1].cap_uw, 500'000'000U);
}

TEST_F(RocmTest, AMissingDriverIsAnErrorWithARemedy) {
  node_.is_driver_gone = true;
  EXPECT_THAT(OpenRocmDevices(FAKE_ROCM_LIBRARY),
              FailsAs(ErrorKind::kSystem, HasSubstr("modprobe amdgpu")));
  EXPECT_THAT(OpenRocmDevices("libm.so.6").error().Message(), HasSubstr("is not ROCm SMI"));
}

TEST(RocmFrequencies, InvalidBytesAreRefused) {
  rocm::StructBuffer bytes = {};
  EXPECT_FALSE(rocm::ParseFrequencies(bytes));
  EXPECT_FALSE(rocm::ParseOverdrive(bytes));
  std::memset(bytes.data(), 0xff, bytes.size());
  EXPECT_FALSE(rocm::ParseFrequencies(bytes));
  EXPECT_FALSE(rocm::ParseOverdrive(bytes));
}

}  // namespace
}  // namespace perseus::device
