// Tests of one process with a clock that advances only when the test advances it.
#include "perseus/simulation/virtual_gpu/virtual_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perseus/base/file.h"
#include "perseus/base/host.h"
#include "tests/support/virtual_node_fixture.h"

namespace perseus::virtual_gpu {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class VirtualNodeFakeClockTest : public VirtualNodeTest {
 protected:
  static constexpr device::Setting k500{500, 500};

  void OpenNode(std::string_view text = kTwoGpus) {
    auto opened = VirtualNode::Open(Describe(text), clock_);
    ASSERT_TRUE(opened) << opened.error().Message();
    node_ = std::make_unique<VirtualNode>(std::move(*opened));
    devices_ = node_->Devices();
    device_ = devices_.devices.at(0).get();
  }

  std::shared_ptr<FakeClock> clock_ = std::make_shared<FakeClock>(777);
  std::unique_ptr<VirtualNode> node_;
  device::DeviceList devices_;
  device::Device* device_ = nullptr;
};

TEST_F(VirtualNodeFakeClockTest, ItsGpusAreDevices) {
  OpenNode();
  ASSERT_EQ(devices_.devices.size(), 2U);
  const device::DeviceInfo& info = devices_.devices[1]->info();
  EXPECT_EQ(info.uuid, "GPU-virtual-box-1");
  EXPECT_EQ(info.name, "Virtual GPU");
  EXPECT_EQ(info.backend, "virtual");
  EXPECT_EQ(info.sm_clocks_mhz.size(), 10U);
  EXPECT_EQ(info.memory_clocks_mhz, std::vector<int>{1215});
  EXPECT_EQ(info.default_power_limit_mw, 400'000);
  EXPECT_EQ(info.measure_only, "");
}

TEST_F(VirtualNodeFakeClockTest, AClockIsLockedAndReadBack) {
  OpenNode();
  auto worker = node_->OpenWorker(0);
  ASSERT_TRUE(worker);
  ASSERT_TRUE(worker->SetRest(Rest::kBlocking));
  EXPECT_FALSE(device_->ReadSetting(device::Control::kSmClock)->setting);

  ASSERT_TRUE(device_->Apply(device::Control::kSmClock, k500));
  EXPECT_TRUE(device_->ReadSetting(device::Control::kSmClock)->is_known);
  EXPECT_EQ(device_->ReadSetting(device::Control::kSmClock)->setting, k500);
  EXPECT_EQ(device_->ReadEffect(device::Control::kSmClock, k500)->state,
            device::EffectState::kPending);
  EXPECT_EQ(device_->Read()->sm_clock_mhz, 1000);
  clock_->Advance(10 * kMillisecond);
  EXPECT_EQ(device_->ReadEffect(device::Control::kSmClock, k500)->state,
            device::EffectState::kInEffect);
  EXPECT_EQ(device_->Read()->sm_clock_mhz, 500);
  EXPECT_EQ(node_->Look(0)->writes, 1U);

  ASSERT_TRUE(node_->SetThrottle(0, 300));
  const auto limited = device_->ReadEffect(device::Control::kSmClock, k500);
  EXPECT_EQ(limited->state, device::EffectState::kLimited);
  EXPECT_EQ(limited->sm_clock_mhz, 300);
  EXPECT_EQ(device::Describe(limited->limits), "a clock setting, too hot");
  ASSERT_TRUE(node_->SetThrottle(0, std::nullopt));

  ASSERT_TRUE(device_->Apply(device::Control::kSmClock, std::nullopt));
  EXPECT_FALSE(device_->ReadSetting(device::Control::kSmClock)->setting);
  clock_->Advance(10 * kMillisecond);
  EXPECT_EQ(device_->ReadEffect(device::Control::kSmClock, std::nullopt)->state,
            device::EffectState::kInEffect);
  EXPECT_EQ(device_->Read()->sm_clock_mhz, 1000);
  // The other GPU is not affected.
  EXPECT_EQ(node_->Look(1)->writes, 0U);
}

TEST_F(VirtualNodeFakeClockTest, TheClockOfAnIdleGpuDoesNotShowTheLock) {
  OpenNode();
  ASSERT_TRUE(device_->Apply(device::Control::kSmClock, k500));
  clock_->Advance(kSecond);
  EXPECT_EQ(device_->ReadEffect(device::Control::kSmClock, k500)->state,
            device::EffectState::kPending);
  EXPECT_EQ(device::Describe(device_->Read()->limits), "idle");
}

TEST_F(VirtualNodeFakeClockTest, OtherControlsTakeEffectAtOnce) {
  OpenNode();
  constexpr device::Setting k200Watts{200'000, 200'000};
  ASSERT_TRUE(device_->Apply(device::Control::kPowerLimit, k200Watts));
  EXPECT_EQ(device_->ReadSetting(device::Control::kPowerLimit)->setting, k200Watts);
  EXPECT_EQ(device_->ReadEffect(device::Control::kPowerLimit, k200Watts)->state,
            device::EffectState::kInEffect);
  EXPECT_EQ(device_->ReadEffect(device::Control::kPowerLimit, std::nullopt)->state,
            device::EffectState::kPending);
  ASSERT_TRUE(device_->Apply(device::Control::kMemoryClock, device::Setting{1215, 1215}));
  EXPECT_EQ(device_->ReadSetting(device::Control::kMemoryClock)->setting,
            (device::Setting{1215, 1215}));
}

TEST_F(VirtualNodeFakeClockTest, InvalidSettingsAreRefused) {
  OpenNode();
  const auto refused = [&](device::Control control, device::Setting setting) {
    const auto applied = device_->Apply(control, setting);
    EXPECT_EQ(applied.error().kind, device::DeviceErrorKind::kInvalid);
    return applied.error().Message();
  };
  EXPECT_EQ(refused(device::Control::kSmClock, {550, 550}),
            "GPU-virtual-box-0 cannot have SM clock 550 MHz (choose a listed clock, 100 to 1000 "
            "MHz)");
  EXPECT_THAT(refused(device::Control::kSmClock, {600, 500}), HasSubstr("600-500 MHz"));
  EXPECT_EQ(refused(device::Control::kPowerLimit, {99'000, 99'000}),
            "GPU-virtual-box-0 cannot have power limit 99 W (choose 100 to 400 W)");
  EXPECT_EQ(node_->Look(0)->writes, 0U);
}

TEST_F(VirtualNodeFakeClockTest, AControlThatItLacksIsNotSupported) {
  OpenNode(
      "gpus = 1\n[gpu]\nlowest_mhz = 100\nhighest_mhz = 1000\nstep_mhz = 100\n"
      "memory_clocks_mhz = []");
  for (const device::Control control :
       {device::Control::kMemoryClock, device::Control::kPowerLimit}) {
    EXPECT_EQ(device_->Apply(control, std::nullopt).error().kind,
              device::DeviceErrorKind::kNotSupported);
  }
}

TEST_F(VirtualNodeFakeClockTest, AWorkerComputes) {
  OpenNode();
  auto worker = node_->OpenWorker(0);
  ASSERT_TRUE(worker) << worker.error().Message();
  ASSERT_TRUE(worker->SetRest(Rest::kBlocking));
  EXPECT_EQ(worker->Begin(Work(1)), 0);
  EXPECT_EQ(worker->Begin(Work(1)).error().Message(),
            "GPU 0 of box still runs an instruction (wait until it is done)");
  EXPECT_EQ(worker->FinishTime(), kSecond);
  clock_->Advance(490 * kMillisecond);
  ASSERT_TRUE(device_->Apply(device::Control::kSmClock, k500));  // Lands at 0.5 s.
  EXPECT_EQ(worker->WaitUntilDone(), 3 * kSecond / 2);
  EXPECT_EQ(node_->Now(), 3 * kSecond / 2);
  EXPECT_DOUBLE_EQ(node_->Look(0)->reading.energy_j, 250);
  EXPECT_EQ(worker->WaitUntilDone(), 3 * kSecond / 2) << "nothing runs, so nothing to wait for";
  clock_->Advance(kSecond);
  EXPECT_DOUBLE_EQ(node_->Look(0)->reading.energy_j, 250 + 80);
  // The counter may be 20 ms late.
  EXPECT_LT(device_->Read()->energy_j, 330);
  EXPECT_GT(device_->Read()->energy_j, 330 - 80 * 0.02 - 1e-9);
}

TEST_F(VirtualNodeFakeClockTest, AGpuHasOneWorkerAtATime) {
  OpenNode();
  {
    auto worker = node_->OpenWorker(0);
    ASSERT_TRUE(worker);
    EXPECT_EQ(node_->Look(0)->worker_pid, getpid());
    ASSERT_TRUE(worker->Begin(Work(100)));
    const auto second = node_->OpenWorker(0);
    EXPECT_EQ(second.error().kind, ErrorKind::kSystem);
    EXPECT_THAT(second.error().Message(),
                HasSubstr(fmt::format("process {} computes on GPU 0", getpid())));
    EXPECT_TRUE(node_->OpenWorker(1));
  }
  EXPECT_EQ(node_->Look(0)->worker_pid, 0);
  EXPECT_FALSE(node_->Look(0)->reading.is_running) << "what it ran ended with it";
  EXPECT_TRUE(node_->OpenWorker(0));
  EXPECT_EQ(node_->OpenWorker(2).error().Message(),
            (directory_ / "box.toml").string() + ": has no GPU 2 (choose 0 to 1)");
}

TEST_F(VirtualNodeFakeClockTest, TimeGoesAtTheNodesRate) {
  for (const double rate : {0.3, 1.0, 7.7, 50.0}) {
    std::filesystem::remove(directory_ / "box.toml.state");
    OpenNode(fmt::format("rate = {}\n{}", rate, kTwoGpus));
    const Nanoseconds begin = clock_->Now();
    EXPECT_EQ(node_->Now(), 0);
    auto worker = node_->OpenWorker(0);
    ASSERT_TRUE(worker);
    ASSERT_TRUE(worker->Begin(Work(3)));
    EXPECT_EQ(worker->WaitUntilDone(), 3 * kSecond);
    // It is never early, and late by at most one nanosecond of real time.
    EXPECT_GE(node_->Now(), 3 * kSecond);
    EXPECT_NEAR(static_cast<double>(clock_->Now() - begin), 3e9 / rate, 1);
  }
}

TEST_F(VirtualNodeFakeClockTest, TheStateStaysWhenTheNodeIsClosed) {
  OpenNode();
  ASSERT_TRUE(device_->Apply(device::Control::kSmClock, k500));
  clock_->Advance(kSecond);
  OpenNode();
  EXPECT_EQ(device_->ReadSetting(device::Control::kSmClock)->setting, k500);
  EXPECT_EQ(node_->Now(), kSecond);
}

TEST_F(VirtualNodeFakeClockTest, AStateFileOfAnotherDescriptionIsRefused) {
  OpenNode();
  const auto error = [&](std::string_view text) {
    return VirtualNode::Open(Describe(text), clock_).error().Message();
  };
  const std::string two_gpus(kTwoGpus);
  const std::string state = (directory_ / "box.toml.state").string();
  const std::string changed = state + ": was created from other contents of " +
                              (directory_ / "box.toml").string() +
                              " (remove it once nothing uses it)";
  EXPECT_EQ(error("rate = 2\n" + two_gpus), changed);
  EXPECT_EQ(error("seed = 2\n" + two_gpus), changed);
  EXPECT_EQ(error(two_gpus + "spread = 0.1\n"), changed);
  EXPECT_EQ(error("gpus = 3" + two_gpus.substr(8)), changed);
  std::string other_chip = two_gpus;
  other_chip.insert(other_chip.find("[switch_latency]"), "power_factors = [1, 1.1]\n");
  EXPECT_EQ(error(other_chip), changed);

  for (const std::string& contents : {std::string("hello"), std::string(100'000, 'x')}) {
    ASSERT_TRUE(WriteFileAtomically(state, contents));
    EXPECT_THAT(error(kTwoGpus), StartsWith(state + ": is not the state of a virtual node"));
  }
}

TEST_F(VirtualNodeFakeClockTest, AStateOfAnEarlierBootIsCreatedAgain) {
  OpenNode();
  ASSERT_TRUE(device_->Apply(device::Control::kSmClock, k500));
  const auto state = directory_ / "box.toml.state";
  std::string contents = *ReadFile(state);
  const std::string boot_id = *BootId();
  const std::size_t at = contents.find(boot_id);
  ASSERT_NE(at, std::string::npos);
  contents[at] = contents[at] == '0' ? '1' : '0';
  ASSERT_TRUE(WriteFileAtomically(state, contents));
  OpenNode();
  EXPECT_FALSE(device_->ReadSetting(device::Control::kSmClock)->setting);
}

// The time in the state is later than the time of the new clock. Instructions would begin only at
// that later time.
TEST_F(VirtualNodeFakeClockTest, AStateOfAnEarlierClockIsRefused) {
  const auto description = Describe("clock = \"job.clock\"\n" + std::string(kTwoGpus));
  const auto earlier = std::make_shared<FakeClock>();
  {
    const auto node = VirtualNode::Open(description, earlier);
    ASSERT_TRUE(node) << node.error().Message();
    earlier->Advance(kSecond);
    ASSERT_TRUE(node->SetThrottle(1, 500));
  }
  EXPECT_TRUE(VirtualNode::Open(description, earlier));
  const auto again = VirtualNode::Open(description, std::make_shared<FakeClock>());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().Message(),
            (directory_ / "box.toml.state").string() + ": is from an earlier clock " +
                (directory_ / "job.clock").string() + " (remove both once nothing uses them)");
}

TEST_F(VirtualNodeFakeClockTest, FailuresToOpenNameTheReason) {
  EXPECT_THAT(OpenVirtualNode(directory_ / "none.toml").error().Message(),
              HasSubstr("none.toml: cannot read: No such file or directory"));
  const auto failed =
      OpenVirtualNode(Describe("state = \"no/such/place\"\n" + std::string(kTwoGpus)));
  EXPECT_EQ(failed.error().kind, ErrorKind::kSystem);
  EXPECT_THAT(failed.error().Message(), HasSubstr("No such file or directory"));
}

TEST_F(VirtualNodeFakeClockTest, WorkerQueuesOneInstructionAndReportsItsTimes) {
  const auto clock = std::make_shared<FakeClock>();
  const auto node = VirtualNode::Open(Describe(kTwoGpus), clock);
  ASSERT_TRUE(node);
  auto worker = node->OpenWorker(0);
  ASSERT_TRUE(worker);
  EXPECT_EQ(*worker->Enqueue(Work(1), 0), 1U);
  EXPECT_EQ(*worker->Enqueue(Work(1), 3 * kSecond), 2U);
  EXPECT_FALSE(worker->Enqueue(Work(1), 0));
  EXPECT_FALSE(worker->Begin(Work(1)));
  EXPECT_EQ(*worker->RunOf(2), (VirtualRun{3 * kSecond, 4 * kSecond}));
  EXPECT_FALSE(worker->RunOf(3));
  EXPECT_FALSE(worker->RunOf(0));
  EXPECT_EQ(*worker->WaitUntilDone(), 4 * kSecond);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(worker->Enqueue(Work(1), 0));
    ASSERT_TRUE(worker->WaitUntilDone());
  }
  EXPECT_FALSE(worker->RunOf(2));
  EXPECT_EQ(worker->RunOf(3)->begin, 4 * kSecond);
}

TEST_F(VirtualNodeFakeClockTest, RealAndVirtualTimeDiffer) {
  const auto clock = std::make_shared<FakeClock>(5 * kSecond);
  const auto node = VirtualNode::Open(Describe(kTwoGpus), clock);
  ASSERT_TRUE(node);
  EXPECT_EQ(node->ToVirtual(7 * kSecond), 2 * kSecond);
  EXPECT_EQ(node->ToReal(2 * kSecond), 7 * kSecond);
}

}  // namespace
}  // namespace perseus::virtual_gpu
