// Forks of a process whose other threads are inside drivers.
#include "perseus/runtime/client/driver_gate.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "perseus/base/clock.h"
#include "perseus/runtime/client/energy_meter.h"
#include "perseus/runtime/client/live_sessions.h"
#include "tests/fake_nvml/fake_node.h"

namespace perseus::client {
namespace {

class DriverGateTest : public testing::Test {
 protected:
  // The first session of a process registers the handlers of forks.
  DriverGateTest() : session_(ClaimLiveSession()) {}
  ~DriverGateTest() override { ReleaseLiveSession(session_); }

  // Forks, and returns whether the child ended by itself after `act`.
  template <typename Act>
  static bool ChildEnds(Act act) {
    const pid_t child = ::fork();
    if (child == 0) {
      // A signal without a handler ends a child that hangs.
      constexpr unsigned kSeconds = 5;
      ::alarm(kSeconds);
      act();
      ::_exit(0);
    }
    int status = 1;
    return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
  }

 private:
  LiveSession* session_;
};

TEST_F(DriverGateTest, NoChildHangsInTheDriver) {
  FakeNode fake(std::vector<fake_nvml::GpuSpec>{{.is_energy_running = true}});
  fake.node.SetSerial(true);
  fake.node.Slow(0, fake_nvml::Function::kGetEnergy, 3);
  RealClock clock;
  device::DeviceList list = fake.Open();
  device::Device& device = *list.devices[0];
  std::atomic<std::uint32_t> is_over = 0;
  std::atomic<int> looks = 0;
  std::thread reader([&] {
    EnergyMeter meter(std::move(list.devices[0]), clock, 1);
    for (; is_over.load() == 0; ++looks) meter.Look();
  });
  for (int i = 0; i < 40; ++i) {
    const int before = looks.load();
    while (looks.load() == before) std::this_thread::yield();
    clock.WaitUntil(clock.Now() + kMillisecond);
    EXPECT_TRUE(ChildEnds([&] { static_cast<void>(device.ReadSmClock()); })) << i;
  }
  is_over = 1;
  reader.join();
}

// If this test hangs, a fork waits without a bound.
TEST_F(DriverGateTest, ADriverThatHangsDelaysForksOnlyForATime) {
  std::atomic<std::uint32_t> is_inside = 0;
  std::atomic<std::uint32_t> is_over = 0;
  RealClock clock;
  std::thread hanging([&] {
    const InDriver in_driver;
    is_inside = 1;
    while (is_over.load() == 0) clock.WaitUntil(clock.Now() + kMillisecond);
  });
  while (is_inside.load() == 0) std::this_thread::yield();
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(ChildEnds([] { const InDriver in_driver; }));
    const InDriver in_driver;  // The gate is open again.
  }
  is_over = 1;
  hanging.join();
  EXPECT_TRUE(ChildEnds([] {}));
}

TEST_F(DriverGateTest, ADriverMayForkItself) {
  const InDriver in_driver;
  const InDriver again;
  EXPECT_TRUE(ChildEnds([] {}));
}

}  // namespace
}  // namespace perseus::client
