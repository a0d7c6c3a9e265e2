#include "perseus/runtime/device/nvml_library.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/fake_nvml/fake_node.h"
#include "tests/support/results.h"

namespace perseus::device {
namespace {

using fake_nvml::Function;

TEST(NvmlLibrary, RestartsOnceForAllDevices) {
  FakeNode fake(std::vector<fake_nvml::GpuSpec>(8));
  const DeviceList list = fake.Open();
  EXPECT_EQ(fake.node.Calls(Function::kInit), 1U);
  fake.node.ReloadDriver();
  for (const auto& device : list.devices) static_cast<void>(device->Read());
  for (const auto& device : list.devices) EXPECT_TRUE(device->Read());
  EXPECT_EQ(fake.node.Calls(Function::kInit), 2U);
}

TEST(NvmlLibrary, EndsWithItsLastDevice) {
  FakeNode fake;
  {
    DeviceList list = fake.Open();
    list.devices.resize(1);
    EXPECT_EQ(fake.node.Calls(Function::kShutdown), 0U);
  }
  EXPECT_EQ(fake.node.Calls(Function::kShutdown), 1U);
}

// Without this pause, each call on a lost GPU would make the healthy GPUs wait for a restart.
TEST(NvmlLibrary, PausesBetweenRestartsForOneGpu) {
  FakeNode fake;
  const DeviceList list = fake.Open();
  fake.node.Lose(0);
  for (int i = 0; i < 20; ++i) static_cast<void>(fake.At(list, 0).Read());
  EXPECT_EQ(fake.node.Calls(Function::kInit), 2U);
  fake.Pass(NvmlLibrary::kRestartPause);
  for (int i = 0; i < 20; ++i) static_cast<void>(fake.At(list, 0).Read());
  EXPECT_EQ(fake.node.Calls(Function::kInit), 3U);
  // A missing driver, however, is a reason to restart.
  fake.node.ReloadDriver();
  static_cast<void>(fake.At(list, 1).Read());
  EXPECT_TRUE(fake.At(list, 1).Read());
}

TEST(NvmlLibrary, ASlowCallDelaysNoOtherGpu) {
  FakeNode fake;
  const DeviceList list = fake.Open();
  fake.node.Slow(0, Function::kSetSmClock, 600'000);
  std::thread slow([&] {
    EXPECT_TRUE(fake.At(list, 0).Apply(Control::kSmClock, Setting{1200, 1200}));
  });
  while (fake.node.Calls(Function::kSetSmClock) == 0) std::this_thread::yield();
  EXPECT_TRUE(fake.At(list, 1).Read());
  EXPECT_TRUE(fake.At(list, 1).Apply(Control::kPowerLimit, std::nullopt));
  EXPECT_EQ(fake.node.SmLock(0), std::nullopt) << "the slow one is still inside";
  fake.node.Slow(0, Function::kSetSmClock, 0);
  slow.join();
  EXPECT_NE(fake.node.SmLock(0), std::nullopt);
}

// A call that never returns must not block the other GPUs.
TEST(NvmlLibrary, ARestartIsPostponedWhileACallHangs) {
  FakeNode fake;
  auto now = std::make_shared<Nanoseconds>(0);
  const auto library = ValueOf(NvmlLibrary::Open(
      FAKE_NVML_LIBRARY, [now] { return *now; }, std::chrono::milliseconds(1)));
  auto hanging = std::make_unique<DeviceResult<NvmlLibrary::Visit>>(library->Enter());
  const std::uint64_t generation = (*hanging)->generation();
  library->ReportGone(generation, NvmlLibrary::Gone::kDriver);
  EXPECT_EQ(library->Enter()->generation(), generation);
  hanging.reset();
  EXPECT_EQ(library->Enter()->generation(), generation) << "not tried again at once";
  *now += NvmlLibrary::kRestartPause;
  EXPECT_EQ(library->Enter()->generation(), generation + 1);
  EXPECT_EQ(fake.node.Calls(Function::kShutdown), 1U);
}

TEST(NvmlLibrary, ManyThreadsSurviveReloads) {
  FakeNode fake(std::vector<fake_nvml::GpuSpec>(4));
  const DeviceList list = fake.Open();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 200; ++round) {
        Device& device = fake.At(list, i);
        const DeviceResult<void> applied = device.Apply(Control::kSmClock, Setting{1200, 1200});
        if (!applied) {
          EXPECT_EQ(applied.error().kind, DeviceErrorKind::kGone);
        }
        static_cast<void>(device.Read());
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    fake.node.ReloadDriver();
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& device : list.devices) {
    static_cast<void>(device->Read());
    static_cast<void>(device->Read());
    EXPECT_TRUE(device->Apply(Control::kSmClock, Setting{1305, 1305}));
  }
}

TEST(NvmlLibrary, TheUnknownErrorNamesTheReloadOfSystemd) {
  EXPECT_THAT(RemedyOfUnknownError(EPERM),
              testing::AllOf(testing::HasSubstr("the kernel no longer lets this container open"),
                             testing::HasSubstr("start the container again")));
  EXPECT_THAT(RemedyOfUnknownError(0), testing::HasSubstr("dmesg"));
  FakeNode fake;
  const DeviceList list = fake.Open();
  fake.node.Fail(0, Function::kGetPower, fake_nvml::kUnknown, 1);
  EXPECT_THAT(fake.At(list, 0).Read(), FailsWith(testing::HasSubstr("systemctl daemon-reload")));
  fake.node.Fail(fake_nvml::FakeNvml::kEveryGpu, Function::kInit, fake_nvml::kUnknown, 1);
  EXPECT_THAT(fake.TryOpen(), FailsWith(testing::HasSubstr("systemctl daemon-reload")));
}

}  // namespace
}  // namespace perseus::device
