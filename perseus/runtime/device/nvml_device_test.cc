#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <thread>
#include <vector>

#include "perseus/runtime/device/nvml_library.h"
#include "perseus/runtime/device/open_devices.h"
#include "tests/fake_nvml/fake_node.h"
#include "tests/support/results.h"

namespace perseus::device {
namespace {

using fake_nvml::ClockRange;
using fake_nvml::Function;
using testing::HasSubstr;

class NvmlDeviceTest : public testing::Test {
 protected:
  FakeNode fake_;
  const DeviceList list_ = fake_.Open();
  Device& device_ = fake_.At(list_, 0);
};

// Some drivers use longer entries.
TEST(NvmlDevice, DescribesTheProgramsOnAGpu) {
  for (const char* library : {FAKE_NVML_LIBRARY, FAKE_NVML_OLD_LIBRARY}) {
    FakeNode fake;
    const DeviceList list = fake.Open(library);
    Device& device = fake.At(list, 1);
    EXPECT_EQ(device.info().driver_version, "570.124.06");
    EXPECT_EQ(device.DescribePrograms(), "");
    fake.node.SetPrograms(0, {1});
    fake.node.SetPrograms(1, {4242});
    EXPECT_EQ(device.DescribePrograms(), "process 4242 runs on " + fake.node.Uuid(1));
    for (const bool are_long : {false, true}) {
      fake.node.UseLongPrograms(1, are_long);
      fake.node.SetPrograms(1, std::vector<int>(16, 77));
      EXPECT_EQ(device.DescribePrograms(),
                "16 processes run on " + fake.node.Uuid(1) + ", process 77 for example");
    }
    fake.node.SetPrograms(1, std::vector<int>(20, 5));
    EXPECT_EQ(device.DescribePrograms(), "20 processes run on " + fake.node.Uuid(1));
    fake.node.Fail(1, Function::kGetPrograms, fake_nvml::kNoPermission);
    EXPECT_THAT(device.DescribePrograms(),
                FailsAs(DeviceErrorKind::kPermission, HasSubstr("NVML error 4")));
  }
}

TEST(NvmlDevice, TheVersionOfTheDriverMayBeUnknown) {
  FakeNode fake;
  fake.node.Fail(fake_nvml::FakeNvml::kEveryGpu, Function::kGetDriverVersion, fake_nvml::kUnknown);
  EXPECT_EQ(fake.Open().devices[0]->info().driver_version, "");
}

// ---- Setting and reading back ----

TEST_F(NvmlDeviceTest, LocksReachTheNamedGpu) {
  Device& second = fake_.At(list_, 1);
  ASSERT_TRUE(second.Apply(Control::kSmClock, Setting{1200, 1305}));
  ASSERT_TRUE(second.Apply(Control::kMemoryClock, Setting{810, 810}));
  ASSERT_TRUE(second.Apply(Control::kPowerLimit, Setting{250'000, 250'000}));
  EXPECT_EQ(fake_.node.SmLock(1), (ClockRange{1200, 1305}));
  EXPECT_EQ(fake_.node.MemoryLock(1), (ClockRange{810, 810}));
  EXPECT_EQ(fake_.node.PowerLimit(1), 250'000);
  EXPECT_TRUE(fake_.node.IsAsShipped(0));
  EXPECT_TRUE(fake_.node.IsAsShipped(2));

  for (const Control control : kAllControls) ASSERT_TRUE(second.Apply(control, std::nullopt));
  EXPECT_TRUE(fake_.node.IsAsShipped(1));
  EXPECT_EQ(fake_.node.Changes().size(), 6U);
}

TEST_F(NvmlDeviceTest, InvalidSettingsNeverReachTheDriver) {
  struct Row {
    const char* name;
    Control control;
    Setting setting;
  };
  const Row kRows[] = {
      {"an SM clock between two", Control::kSmClock, {1201, 1201}},
      {"an SM clock above all", Control::kSmClock, {1410, 1500}},
      {"an SM clock of 0", Control::kSmClock, {0, 1410}},
      {"a range the wrong way round", Control::kSmClock, {1410, 1200}},
      {"an SM clock as memory clock", Control::kMemoryClock, {1410, 1410}},
      {"a power limit below the least", Control::kPowerLimit, {99'999, 99'999}},
      {"a power limit above the most", Control::kPowerLimit, {400'001, 400'001}},
      {"a range of power limits", Control::kPowerLimit, {200'000, 300'000}},
  };
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    EXPECT_THAT(device_.Apply(row.control, row.setting),
                FailsAs(DeviceErrorKind::kInvalid, HasSubstr(fake_.node.Uuid(0))));
  }
  EXPECT_TRUE(fake_.node.Changes().empty());
}

TEST_F(NvmlDeviceTest, ReadsThePowerLimitButNotTheClocks) {
  EXPECT_EQ(device_.ReadSetting(Control::kPowerLimit)->setting, std::nullopt);
  fake_.node.SetPowerLimit(0, 300'000);
  const SettingReading limit = ValueOf(device_.ReadSetting(Control::kPowerLimit));
  EXPECT_TRUE(limit.is_known);
  EXPECT_EQ(limit.setting, (Setting{300'000, 300'000}));

  EXPECT_FALSE(device_.ReadSetting(Control::kSmClock)->is_known);
  EXPECT_EQ(device_.ReadSetting(Control::kSmClock)->hint, "");
  EXPECT_FALSE(device_.ReadSetting(Control::kMemoryClock)->is_known);
}

TEST_F(NvmlDeviceTest, RecognizesAForeignLock) {
  fake_.node.LockSm(0, {1200, 1200});
  EXPECT_EQ(device_.ReadSetting(Control::kSmClock)->hint,
            "the SM clock stands at 1200 of 1410 MHz, and the driver names a clock setting as the "
            "reason");
  EXPECT_TRUE(device_.ReadSetting(Control::kSmClock)->is_certain);
  // The memory clock is at its highest value, so it is not the clock that was set.
  EXPECT_EQ(device_.ReadSetting(Control::kMemoryClock)->hint, "");
  EXPECT_FALSE(device_.ReadSetting(Control::kMemoryClock)->is_certain);
  fake_.node.HideSetting(0, true);
  EXPECT_FALSE(device_.ReadSetting(Control::kSmClock)->is_certain);
  EXPECT_EQ(device_.ReadSetting(Control::kSmClock)->hint,
            "the SM clock stands at 1200 of 1410 MHz, and the driver names no reason for it");
  // If a low clock has another explanation, it is no sign of a lock.
  fake_.node.Cap(0, 210, 0x20);
  EXPECT_EQ(device_.ReadSetting(Control::kSmClock)->hint, "");
  fake_.node.SetIdle(0, true);
  EXPECT_EQ(device_.ReadSetting(Control::kSmClock)->hint, "");
}

TEST(NvmlDevice, TelemetryHasItsUnits) {
  FakeNode fake({{.power_mw = 123'456, .temperature_c = 61}});
  const DeviceList list = fake.Open();
  fake.node.AddEnergy(0, 7'500);
  fake.node.Cap(0, 1305, 0x40 | 0x8);
  const Telemetry telemetry = ValueOf(list.devices[0]->Read());
  EXPECT_EQ(telemetry.at, 100 * kSecond);
  EXPECT_DOUBLE_EQ(telemetry.power_w.value(), 123.456);
  EXPECT_FALSE(telemetry.energy_j) << "the counter is on trial";
  EXPECT_EQ(telemetry.temperature_c, 61);
  EXPECT_EQ(telemetry.sm_clock_mhz, 1305);
  EXPECT_EQ(telemetry.memory_clock_mhz, 1215);
  ClockLimits hot;
  hot.Add(ClockLimit::kThermal);
  EXPECT_EQ(telemetry.limits, hot);
}

TEST_F(NvmlDeviceTest, ReadingEnergyCallsNothingElse) {
  fake_.Run(device_, 100);
  EXPECT_EQ(device_.Read()->counter, CounterState::kUsed);
  fake_.node.Fail(0, Function::kGetPower, fake_nvml::kNoPermission, 1);
  EXPECT_DOUBLE_EQ(ValueOf(device_.ReadEnergy()).value(), 300);
  EXPECT_FALSE(device_.Read());
  EXPECT_DOUBLE_EQ(device_.Read()->energy_j.value(), 300);
}

// A GH200: the power is that of the GPU, and the counter adds the CPU and its memory.
TEST_F(NvmlDeviceTest, ACounterOfAModuleIsReplacedByThePowerOfTheGpu) {
  fake_.node.SetPower(0, 310'000);
  fake_.Run(device_, 500);
  const Telemetry begin = ValueOf(device_.Read());
  EXPECT_EQ(begin.counter, CounterState::kOfModule);
  EXPECT_EQ(DescribeEnergy(begin),
            "its energy counter is that of a whole module (GPU, CPU and memory): energy is "
            "integrated from power");
  fake_.Run(device_, 500, 10 * kSecond);
  EXPECT_NEAR(ValueOf(device_.ReadEnergy()).value() - begin.energy_j.value(), 3100, 1);
}

TEST_F(NvmlDeviceTest, ACounterThatFailsIsReplacedAndTheWindowIsLost) {
  fake_.Run(device_, 100);
  EXPECT_DOUBLE_EQ(ValueOf(device_.ReadEnergy()).value(), 300);
  fake_.node.ResetEnergy(0);
  fake_.node.AddEnergy(0, 5'000);
  EXPECT_EQ(ValueOf(device_.ReadEnergy()).value(), 0) << "a smaller value, not a window of 0 J";
  EXPECT_EQ(device_.Read()->counter_falls, 1U);
  EXPECT_EQ(device_.Read()->counter, CounterState::kUsed);
  fake_.Pass(kSecond);
  fake_.node.ResetEnergy(0);
  EXPECT_EQ(ValueOf(device_.ReadEnergy()).value(), 0) << "integrated from now on";
  EXPECT_EQ(device_.Read()->counter, CounterState::kFalls);
  fake_.Pass(2 * kSecond);
  EXPECT_DOUBLE_EQ(ValueOf(device_.ReadEnergy()).value(), 200);
}

// A virtual GPU of a hypervisor.
TEST(NvmlDevice, WithoutPowerAndCounterBothAreAbsent) {
  FakeNode fake({{.has_energy_counter = false, .has_power = false}});
  const DeviceList list = fake.Open();
  const Telemetry telemetry = ValueOf(list.devices[0]->Read());
  EXPECT_FALSE(telemetry.power_w);
  EXPECT_FALSE(telemetry.energy_j);
  EXPECT_EQ(telemetry.sm_clock_mhz, 1410);
  EXPECT_EQ(
      DescribeEnergy(telemetry),
      "no energy counter: its energy is unknown, because the driver does not report its power");
}

TEST_F(NvmlDeviceTest, EachReasonHasItsLimit) {
  struct Row {
    const char* name;
    std::uint64_t reasons;
    std::vector<ClockLimit> limits;
  };
  const Row kRows[] = {
      {"power cap", 0x4, {ClockLimit::kPowerCap}},
      {"software thermal", 0x20, {ClockLimit::kThermal}},
      {"hardware thermal", 0x48, {ClockLimit::kThermal}},
      {"power brake", 0x88, {ClockLimit::kPowerBrake}},
      {"hardware slowdown, unexplained", 0x8, {ClockLimit::kOther}},
      {"sync boost", 0x10, {ClockLimit::kOther}},
      {"one that NVML gets in future", 0x4000, {ClockLimit::kOther}},
      {"cap and heat", 0x24, {ClockLimit::kPowerCap, ClockLimit::kThermal}},
  };
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    fake_.node.Cap(0, 1200, row.reasons);
    ClockLimits wanted;
    for (const ClockLimit limit : row.limits) wanted.Add(limit);
    EXPECT_EQ(device_.Read()->limits, wanted);
  }
}

TEST(NvmlDevice, IntegratesPowerWithoutAnEnergyCounter) {
  FakeNode fake({{.has_energy_counter = false, .power_mw = 100'000}});
  const DeviceList list = fake.Open();
  Device& device = *list.devices[0];
  EXPECT_DOUBLE_EQ(device.Read()->energy_j.value(), 0);
  EXPECT_EQ(device.Read()->counter, CounterState::kNone);
  fake.Pass(2 * kSecond);
  fake.node.SetPower(0, 300'000);
  EXPECT_DOUBLE_EQ(device.Read()->energy_j.value(), 400);
}

// ---- Effects ----

TEST_F(NvmlDeviceTest, ALockedClockTakesEffect) {
  const std::optional<Setting> lock = Setting{1305, 1305};
  const auto state = [&](std::optional<Setting> setting) {
    return device_.ReadEffect(Control::kSmClock, setting)->state;
  };
  ASSERT_TRUE(device_.Apply(Control::kSmClock, lock));
  EXPECT_EQ(state(lock), EffectState::kInEffect);
  EXPECT_EQ(state(std::nullopt), EffectState::kPending) << "it is still locked";
  EXPECT_EQ(state(Setting{1200, 1410}), EffectState::kInEffect) << "within the range";

  fake_.node.StickSmClock(0, 1410);
  EXPECT_EQ(state(lock), EffectState::kPending) << "the switch has not landed";
  fake_.node.StickSmClock(0, 0);

  fake_.node.Cap(0, 1200, 0x4);
  const DeviceResult<Effect> capped = device_.ReadEffect(Control::kSmClock, lock);
  EXPECT_EQ(capped->state, EffectState::kLimited);
  EXPECT_EQ(capped->sm_clock_mhz, 1200);
  EXPECT_EQ(Describe(capped->limits), "a clock setting, power limit");
  fake_.node.Cap(0, 1200, 0x20);
  EXPECT_EQ(state(lock), EffectState::kLimited);
  EXPECT_EQ(state(Setting{1200, 1200}), EffectState::kInEffect) << "hot, but as asked";

  fake_.node.SetIdle(0, true);
  EXPECT_EQ(state(lock), EffectState::kPending);
  EXPECT_EQ(state(std::nullopt), EffectState::kPending);
  fake_.node.SetIdle(0, false);
  fake_.node.Heal();

  ASSERT_TRUE(device_.Apply(Control::kSmClock, std::nullopt));
  EXPECT_EQ(state(std::nullopt), EffectState::kInEffect);
}

TEST_F(NvmlDeviceTest, TheMemoryClockAndThePowerLimitTakeEffect) {
  ASSERT_TRUE(device_.Apply(Control::kMemoryClock, Setting{810, 810}));
  EXPECT_EQ(device_.ReadEffect(Control::kMemoryClock, Setting{810, 810})->state,
            EffectState::kInEffect);
  EXPECT_EQ(device_.ReadEffect(Control::kMemoryClock, std::nullopt)->state, EffectState::kPending);
  ASSERT_TRUE(device_.Apply(Control::kPowerLimit, Setting{200'000, 200'000}));
  EXPECT_EQ(device_.ReadEffect(Control::kPowerLimit, Setting{200'000, 200'000})->state,
            EffectState::kInEffect);
  EXPECT_EQ(device_.ReadEffect(Control::kPowerLimit, std::nullopt)->state, EffectState::kPending);
}

// The driver reports success but changes nothing. Reading the setting back shows this.
TEST_F(NvmlDeviceTest, AnIgnoredChangeIsNotInEffect) {
  fake_.node.IgnoreChanges(0, true);
  EXPECT_TRUE(device_.Apply(Control::kSmClock, Setting{1200, 1200}));
  EXPECT_TRUE(device_.Apply(Control::kPowerLimit, Setting{200'000, 200'000}));
  EXPECT_EQ(device_.ReadEffect(Control::kSmClock, Setting{1200, 1200})->state,
            EffectState::kPending);
  EXPECT_EQ(device_.ReadEffect(Control::kPowerLimit, Setting{200'000, 200'000})->state,
            EffectState::kPending);
}

// ---- Faults ----

struct FaultRow {
  const char* name;
  int code;
  DeviceErrorKind of_change;
  DeviceErrorKind of_read;
};
constexpr DeviceErrorKind kPermission = DeviceErrorKind::kPermission;
constexpr DeviceErrorKind kUnsupported = DeviceErrorKind::kNotSupported;
constexpr DeviceErrorKind kGone = DeviceErrorKind::kGone;
constexpr DeviceErrorKind kFailed = DeviceErrorKind::kFailed;
constexpr DeviceErrorKind kInvalid = DeviceErrorKind::kInvalid;
constexpr FaultRow kFaults[] = {
    {"uninitialized", 1, kGone, kGone},
    {"invalid argument", 2, kInvalid, kGone},  // In a read, the code means an invalid handle.
    {"not supported", 3, kUnsupported, kUnsupported},
    {"no permission", 4, kPermission, kPermission},
    {"not found", 6, kGone, kGone},
    {"insufficient power", 8, kFailed, kFailed},
    {"driver not loaded", 9, kGone, kGone},
    {"timeout", 10, kFailed, kFailed},
    {"interrupt trouble", 11, kFailed, kFailed},
    {"library not found", 12, kGone, kGone},
    {"function not found", 13, kUnsupported, kUnsupported},
    {"lost", 15, kGone, kGone},
    {"reset required", 16, kGone, kGone},
    {"blocked by the operating system", 17, kPermission, kPermission},
    {"versions of library and driver differ", 18, kGone, kGone},
    {"in use", 19, kFailed, kFailed},
    {"no memory", 20, kFailed, kFailed},
    {"frequency not supported", 24, kInvalid, kInvalid},
    {"version of an argument", 25, kUnsupported, kUnsupported},
    {"deprecated", 26, kUnsupported, kUnsupported},
    {"not ready", 27, kFailed, kFailed},
    {"no GPU", 28, kGone, kGone},
    {"unknown", 999, kFailed, kFailed},
    {"a code of the future", 4321, kFailed, kFailed},
};

class NvmlFault : public testing::TestWithParam<FaultRow> {};

TEST_P(NvmlFault, HasItsKindAndOneLineThatNamesTheGpu) {
  FakeNode fake;
  const DeviceList list = fake.Open();
  Device& device = fake.At(list, 1);
  const auto check = [&](const DeviceError& error, DeviceErrorKind kind) {
    EXPECT_EQ(error.kind, kind) << error.Message();
    EXPECT_THAT(error.Message(), HasSubstr(fake.node.Uuid(1) + ": cannot "));
    EXPECT_THAT(error.Message(), HasSubstr(fmt::format("NVML error {}", GetParam().code)));
    EXPECT_EQ(error.Message().find('\n'), std::string::npos);
  };
  for (const Control control : kAllControls) {
    const Setting setting = control == Control::kPowerLimit    ? Setting{200'000, 200'000}
                            : control == Control::kMemoryClock ? Setting{810, 810}
                                                               : Setting{1200, 1200};
    for (const std::optional<Setting>& change :
         {std::optional(setting), std::optional<Setting>()}) {
      fake.node.FailChanges(1, GetParam().code);
      const DeviceResult<void> applied = device.Apply(control, change);
      ASSERT_FALSE(applied);
      check(applied.error(), GetParam().of_change);
      fake.node.Heal();
      EXPECT_TRUE(device.Apply(control, change)) << "healed, it works again";
    }
  }
  fake.node.Fail(1, Function::kGetClock, GetParam().code, 1);
  const DeviceResult<Telemetry> telemetry = device.Read();
  ASSERT_FALSE(telemetry);
  check(telemetry.error(), GetParam().of_read);
  EXPECT_TRUE(device.Read());
  EXPECT_TRUE(fake.At(list, 0).Read()) << "nor does it touch the others";
}

INSTANTIATE_TEST_SUITE_P(Codes, NvmlFault, testing::ValuesIn(kFaults),
                         [](const auto& row) { return fmt::format("Code{}", row.param.code); });

TEST_F(NvmlDeviceTest, WithoutPermissionTheMessageHasTheRemedy) {
  fake_.node.FailChanges(fake_nvml::FakeNvml::kEveryGpu, fake_nvml::kNoPermission);
  EXPECT_THAT(
      device_.Apply(Control::kSmClock, Setting{1200, 1200}),
      FailsWith(fake_.node.Uuid(0) +
                ": cannot lock the SM clock to 1200 MHz: Insufficient Permissions (NVML error 4) "
                "(run the agent as root; in a container, with --cap-add SYS_ADMIN as well)"));
}

// ---- Gone and back ----

TEST_F(NvmlDeviceTest, FindsItsGpuAgainAfterAReload) {
  Device& second = fake_.At(list_, 1);
  fake_.Run(second, 100);
  EXPECT_DOUBLE_EQ(second.Read()->energy_j.value(), 300);
  ASSERT_TRUE(second.Apply(Control::kSmClock, Setting{1200, 1200}));

  fake_.node.ReloadDriver();
  EXPECT_TRUE(fake_.node.IsAsShipped(1));
  EXPECT_THAT(second.Apply(Control::kSmClock, Setting{1305, 1305}),
              FailsAs(DeviceErrorKind::kGone));
  ASSERT_TRUE(second.Apply(Control::kSmClock, Setting{1305, 1305}));
  EXPECT_EQ(fake_.node.SmLock(1), (ClockRange{1305, 1305}));
  EXPECT_EQ(second.Read()->energy_j, 0) << "a smaller value begins a new count";
  fake_.node.AddEnergy(1, 1'000);
  EXPECT_DOUBLE_EQ(second.Read()->energy_j.value(), 1);
}

TEST_F(NvmlDeviceTest, StaysLostWithoutADriver) {
  fake_.node.UnloadDriver();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(device_.Read(), FailsAs(DeviceErrorKind::kGone));
  }
  EXPECT_THAT(device_.Read().error().Message(), HasSubstr("NVIDIA's driver is gone"));
  fake_.node.LoadDriver();
  EXPECT_TRUE(device_.Read());
}

TEST_F(NvmlDeviceTest, ALostGpuReturnsAndTheOthersContinue) {
  fake_.node.Lose(1);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(fake_.At(list_, 1).Read().error().kind, DeviceErrorKind::kGone);
    EXPECT_TRUE(device_.Read());
  }
  fake_.node.Find(1);
  fake_.Pass(NvmlLibrary::kRestartPause);
  EXPECT_TRUE(fake_.At(list_, 1).Read());
}

// A process that is killed leaves its lock set, and the next process finds it.
TEST(NvmlDevice, SettingsOutliveTheProcess) {
  FakeNode fake;
  const pid_t child = ::fork();
  if (child == 0) {
    const DeviceList list = fake.Open();
    if (!fake.At(list, 2).Apply(Control::kSmClock, Setting{1200, 1200})) ::_exit(1);
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(fake.node.SmLock(2), (ClockRange{1200, 1200}));
  const std::vector<fake_nvml::LoggedCall> changes = fake.node.Changes();
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].function, Function::kSetSmClock);
  EXPECT_EQ(changes[0].gpu, 2);
  EXPECT_EQ(changes[0].first, 1200);
  EXPECT_EQ(changes[0].pid, child);
  EXPECT_EQ(changes[0].result, 0);

  const DeviceList list = fake.Open();
  ASSERT_TRUE(fake.At(list, 2).Apply(Control::kSmClock, std::nullopt));
  EXPECT_TRUE(fake.node.IsAsShipped(2));
}

// The fake remains usable after processes are killed inside its calls.
TEST(FakeNvml, KeepsWorkingWhereverAProcessIsKilled) {
  FakeNode fake;
  for (std::uint64_t round = 0; round < 50; ++round) {
    const std::uint64_t before = fake.node.Calls(Function::kSetSmClock);
    const pid_t child = ::fork();
    if (child == 0) {
      const DeviceList list = fake.Open();
      while (true) {
        static_cast<void>(fake.At(list, 0).Apply(Control::kSmClock, Setting{1200, 1305}));
        static_cast<void>(fake.At(list, 0).Apply(Control::kSmClock, Setting{210, 1410}));
      }
    }
    while (fake.node.Calls(Function::kSetSmClock) < before + 1 + round * 7) {
      std::this_thread::yield();
    }
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    const std::optional<ClockRange> lock = fake.node.SmLock(0);
    EXPECT_TRUE(!lock || *lock == (ClockRange{1200, 1305}) || *lock == (ClockRange{210, 1410}));
  }
  int unfinished = 0;
  for (const fake_nvml::LoggedCall& call : fake.node.Log()) unfinished += call.result ? 0 : 1;
  EXPECT_LE(unfinished, 50);
  const DeviceList list = fake.Open();
  ASSERT_TRUE(fake.At(list, 0).Apply(Control::kSmClock, std::nullopt));
  EXPECT_TRUE(fake.node.IsAsShipped(0));
}

using testing::ElementsAre;

TEST(NvmlDevices, AreFoundByUuidAtAnyIndex) {
  FakeNode fake;
  const DeviceList list = fake.Open();
  ASSERT_EQ(list.devices.size(), 3U);
  EXPECT_TRUE(list.refused.empty());
  EXPECT_EQ(list.devices[0]->info().uuid, fake.node.Uuid(2));
  EXPECT_EQ(list.devices[1]->info().uuid, fake.node.Uuid(1));
  EXPECT_EQ(list.devices[2]->info().uuid, fake.node.Uuid(0));
  // nvidia-smi shows the same number.
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
  EXPECT_EQ(list.refused[0].uuid, fake.node.Uuid(1));
  EXPECT_FALSE(list.refused[0].pci_bus_id.empty());
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
  ASSERT_THAT(list, FailsAs(ErrorKind::kSystem,
                            ::testing::AllOf(HasSubstr("Driver Not Loaded (NVML error 9)"),
                                             HasSubstr("modprobe nvidia"))));

  list = fake.TryOpen("/nonexistent/libnvidia-ml.so.1");
  ASSERT_THAT(list, FailsAs(ErrorKind::kSystem, HasSubstr("install NVIDIA's driver")));

  list = fake.TryOpen("libm.so.6");
  EXPECT_THAT(list, FailsWith(HasSubstr("libm.so.6 lacks nvmlInit_v2")));
}

// An old driver has no energy counter, no memory clock lock and no MIG. For the throttle reasons,
// it has an older function.
TEST(NvmlDevices, FunctionsThatAnOldDriverLacksAreNotSupported) {
  FakeNode fake;
  const DeviceList list = fake.Open(FAKE_NVML_OLD_LIBRARY);
  ASSERT_EQ(list.devices.size(), 3U);
  Device& device = fake.At(list, 0);
  EXPECT_EQ(device.info().measure_only, "");
  fake.node.Cap(0, 1200, 0x4);
  const Telemetry telemetry = ValueOf(device.Read());
  EXPECT_EQ(telemetry.counter, CounterState::kNone);
  EXPECT_TRUE(telemetry.limits.Has(ClockLimit::kPowerCap));
  EXPECT_TRUE(device.Apply(Control::kSmClock, Setting{1200, 1200}));
  EXPECT_THAT(device.Apply(Control::kMemoryClock, Setting{1215, 1215}),
              FailsAs(DeviceErrorKind::kNotSupported));
}

}  // namespace
}  // namespace perseus::device
