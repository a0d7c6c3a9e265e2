#include "perseus/runtime/agent/gpu_worker.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include <atomic>

#include "tests/support/fake_device.h"

namespace perseus::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Write = FakeGpu::Write;

Write Sm(int mhz) { return {device::Control::kSmClock, device::Setting{mhz, mhz}}; }

GpuWorker::Periods PeriodsWithLanding(std::chrono::milliseconds landing) {
  return {.observe_serving = std::chrono::milliseconds(1),
          .observe_free = std::chrono::milliseconds(1),
          .first_retry = std::chrono::milliseconds(1),
          .last_retry = std::chrono::milliseconds(4),
          .landing = landing};
}

class ChannelTest : public testing::Test {
 protected:
  ChannelTest() {
    std::vector<FileDescriptor> descriptors;
    for (const int fd : channel_->descriptors()) {
      descriptors.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    }
    publisher_.emplace(*protocol::ClockPublisher::Attach(std::move(descriptors)));
  }

  // Publishes a request and waits for the answer.
  protocol::ClockAnswer Ask(int mhz) {
    const std::uint32_t sequence = publisher_->Publish(0, mhz, MonotonicNow());
    EXPECT_TRUE(Eventually([&] { return publisher_->answer(0).sequence == sequence; }));
    return publisher_->answer(0);
  }
  static void GiveBack(GpuWorker& worker, std::vector<ControlSetting> settings) {
    std::atomic<bool> is_back = false;
    worker.Restore(std::move(settings), [&] { is_back = true; });
    EXPECT_TRUE(Eventually([&] { return is_back.load(); }));
  }

  FakeGpu gpu_{"GPU-a"};
  const std::shared_ptr<protocol::ClockChannel> channel_ =
      std::make_shared<protocol::ClockChannel>(*protocol::ClockChannel::Create(1));
  std::optional<protocol::ClockPublisher> publisher_;
};

class GpuWorkerTest : public ChannelTest {
 protected:
  // However slow the test is, no reading shows who holds the clock.
  GpuWorker worker_{gpu_.Open(), PeriodsWithLanding(std::chrono::hours(1))};
};

TEST_F(GpuWorkerTest, SetsTheRequestedClock) {
  worker_.Serve(channel_, 0, std::nullopt);
  EXPECT_EQ(Ask(1200).sm_clock_mhz, 1200);
  Ask(1000);
  EXPECT_THAT(gpu_.history(), ElementsAre(Sm(1200), Sm(1000)));
  // If the same clock is requested again, the request does not reach the driver.
  Ask(1000);
  EXPECT_EQ(gpu_.history().size(), 2U);
  // A request of 0 restores the setting from before the lease.
  Ask(0);
  EXPECT_EQ(gpu_.setting(device::Control::kSmClock), std::nullopt);
  const GpuSnapshot snapshot = worker_.snapshot();
  EXPECT_EQ(snapshot.counts.switches, 3U);
  EXPECT_EQ(snapshot.counts.no_ops, 1U);
  EXPECT_EQ(snapshot.request_to_call.count(), 3U);
}

TEST_F(GpuWorkerTest, RefusesClocksThatTheGpuDoesNotHave) {
  worker_.Serve(channel_, 0, std::nullopt);
  EXPECT_EQ(Ask(1201).outcome, protocol::ClockOutcome::kRefused);
  EXPECT_EQ(Ask(-5).outcome, protocol::ClockOutcome::kRefused);
  EXPECT_TRUE(gpu_.history().empty());
  EXPECT_EQ(worker_.snapshot().counts.refused, 2U);
}

TEST_F(GpuWorkerTest, TheLatestWinsWhileTheDriverIsBusy) {
  worker_.Serve(channel_, 0, std::nullopt);
  gpu_.Block();
  publisher_->Publish(0, 900);
  ASSERT_TRUE(Eventually([&] { return worker_.snapshot().in_driver_since != 0; }));
  for (const int mhz : {1000, 1100, 1200, 1300}) publisher_->Publish(0, mhz);
  gpu_.Unblock();
  ASSERT_TRUE(Eventually([&] {
    return gpu_.setting(device::Control::kSmClock) == device::Setting{1300, 1300};
  }));
  EXPECT_THAT(gpu_.history(), ElementsAre(Sm(900), Sm(1300)));
  EXPECT_TRUE(Eventually([&] { return worker_.snapshot().counts.coalesced == 3; }));
}

TEST_F(GpuWorkerTest, AcceptedIsNotYetInEffect) {
  worker_.Serve(channel_, 0, std::nullopt);
  gpu_.IgnoreNext(device::Control::kSmClock, 1);
  EXPECT_EQ(Ask(1200).outcome, protocol::ClockOutcome::kAccepted);
  EXPECT_EQ(worker_.snapshot().counts.in_effect, 0U);
  Ask(1100);
  EXPECT_TRUE(Eventually(
      [&] { return publisher_->answer(0).outcome == protocol::ClockOutcome::kInEffect; }));
  device::ClockLimits hot;
  hot.Add(device::ClockLimit::kThermal);
  gpu_.SetLimits(hot);
  Ask(1300);
  EXPECT_TRUE(Eventually(
      [&] { return publisher_->answer(0).outcome == protocol::ClockOutcome::kLimited; }));
  EXPECT_EQ(worker_.snapshot().effect->limits, hot);
}

TEST_F(GpuWorkerTest, TheAnswerTellsThePowerLimitFromOtherCauses) {
  worker_.Serve(channel_, 0, std::nullopt);
  const auto comes = [&](protocol::ClockOutcome outcome) {
    return Eventually([&] { return publisher_->answer(0).outcome == outcome; });
  };
  device::ClockLimits limits;
  limits.Add(device::ClockLimit::kPowerCap);
  gpu_.SetLimits(limits);
  Ask(1300);
  EXPECT_TRUE(comes(protocol::ClockOutcome::kAtPowerLimit));
  limits.Add(device::ClockLimit::kThermal);
  gpu_.SetLimits(limits);
  Ask(1200);
  EXPECT_TRUE(comes(protocol::ClockOutcome::kLimited));
}

// Tests in which another program sets the same GPU.
class OverriddenTest : public ChannelTest {
 protected:
  static constexpr device::Control kSm = device::Control::kSmClock;

  void Start(WhenOverridden when_overridden, double most_changes_per_s = 0) {
    worker_ =
        std::make_unique<GpuWorker>(gpu_.Open(), PeriodsWithLanding(std::chrono::milliseconds(5)),
                                    std::make_shared<RealClock>(), when_overridden);
    worker_->LimitChanges(most_changes_per_s);
    worker_->Serve(channel_, 0, std::nullopt);
  }

  void OtherLocks(int mhz) { gpu_.Set(kSm, device::Setting{mhz, mhz}); }
  void OtherUnlocks() { gpu_.Set(kSm, std::nullopt); }
  bool IsSoonAt(int mhz) {
    return Eventually([&] { return gpu_.setting(kSm) == device::Setting{mhz, mhz}; });
  }
  std::optional<ForeignClock> WaitForForeign(int mhz) {
    std::optional<ForeignClock> foreign;
    EXPECT_TRUE(Eventually([&] {
      foreign = worker_->snapshot().foreign;
      return foreign && foreign->sm_clock_mhz == mhz;
    }));
    return foreign;
  }
  void EndLease() { GiveBack(*worker_, {{kSm, std::nullopt}}); }
  // Makes the driver report no lock. It then reports only that a clock setting is the reason for a
  // low clock.
  void HideLocks() {
    gpu_.HideSmClock("a clock setting");
    device::ClockLimits setting;
    setting.Add(device::ClockLimit::kSetting);
    gpu_.SetLimits(setting);
  }

  std::unique_ptr<GpuWorker> worker_;
};

TEST_F(OverriddenTest, YieldsUntilTheLockIsGone) {
  Start(WhenOverridden::kYield);
  Ask(1200);
  OtherLocks(1000);
  const auto foreign = WaitForForeign(1000).value();
  EXPECT_EQ(foreign.setting, (device::Setting{1000, 1000}));
  EXPECT_TRUE(foreign.has_yielded);
  EXPECT_EQ(Ask(1100).outcome, protocol::ClockOutcome::kLimited);
  EXPECT_THAT(gpu_.history(), ElementsAre(Sm(1200)));
  EXPECT_EQ(worker_->snapshot().counts.yielded, 1U);
  OtherUnlocks();
  EXPECT_TRUE(IsSoonAt(1100)) << "the latest request of the job";
  EXPECT_FALSE(worker_->snapshot().foreign);
  EXPECT_EQ(worker_->snapshot().counts.foreign_locks, 1U);
}

TEST_F(OverriddenTest, InsistsIfConfigured) {
  Start(WhenOverridden::kInsist);
  Ask(1200);
  OtherLocks(1000);
  EXPECT_TRUE(IsSoonAt(1200));
  EXPECT_EQ(worker_->snapshot().counts.foreign_locks, 1U);
  EXPECT_TRUE(Eventually([&] { return !worker_->snapshot().foreign; }));
}

TEST_F(OverriddenTest, SetsAClockAgainThatNobodyHolds) {
  Start(WhenOverridden::kYield);
  Ask(1200);
  OtherUnlocks();
  EXPECT_TRUE(IsSoonAt(1200));
  EXPECT_EQ(worker_->snapshot().counts.foreign_resets, 1U);
  EXPECT_EQ(worker_->snapshot().counts.foreign_locks, 0U);
}

TEST_F(OverriddenTest, AWriteThatTheDriverDidNotPerformIsRepeated) {
  Start(WhenOverridden::kYield);
  gpu_.IgnoreNext(kSm, 1);
  Ask(1200);
  EXPECT_TRUE(IsSoonAt(1200));
}

TEST_F(OverriddenTest, TheEndOfTheLeaseLeavesTheLockOfTheOtherProgram) {
  Start(WhenOverridden::kYield);
  Ask(1200);
  OtherLocks(1000);
  WaitForForeign(1000);
  EndLease();
  EXPECT_EQ(gpu_.setting(kSm), (device::Setting{1000, 1000}));
  // The other program no longer overrides a clock of a job.
  EXPECT_FALSE(worker_->snapshot().foreign);
}

TEST_F(OverriddenTest, ADriverThatReportsNoLockShowsAHigherClock) {
  HideLocks();
  Start(WhenOverridden::kYield);
  Ask(1000);
  OtherLocks(1300);
  const auto foreign = WaitForForeign(1300).value();
  EXPECT_FALSE(foreign.setting);
  EXPECT_TRUE(foreign.is_certain);
  EndLease();
  EXPECT_EQ(gpu_.setting(kSm), (device::Setting{1300, 1300}));
}

// A lower clock might be the agent's own lock, which must not be left behind.
TEST_F(OverriddenTest, ALowerClockIsNotProofEnoughToLeaveIt) {
  HideLocks();
  Start(WhenOverridden::kYield);
  Ask(1200);
  OtherLocks(1000);
  const auto foreign = WaitForForeign(1000).value();
  EXPECT_TRUE(foreign.has_yielded);
  EXPECT_FALSE(foreign.is_certain);
  HideLocks();
  gpu_.SetLimits({});  // Needed so that the restore is confirmed.
  EndLease();
  EXPECT_EQ(gpu_.setting(kSm), std::nullopt);
}

using LimitedChangesTest = OverriddenTest;

// One change in a thousand seconds.
constexpr double kAlmostNone = 0.001;

TEST_F(LimitedChangesTest, OnlyALowerClockWaits) {
  Start(WhenOverridden::kYield, kAlmostNone);
  Ask(1000);
  publisher_->Publish(0, 900);
  ASSERT_TRUE(Eventually([&] { return worker_->snapshot().counts.postponed == 1; }));
  Ask(1200);
  Ask(1410);
  EXPECT_THAT(gpu_.history(), ElementsAre(Sm(1000), Sm(1200), Sm(1410)));
  EXPECT_EQ(worker_->snapshot().counts.coalesced, 1U) << "the phase at 900 MHz was skipped";
  publisher_->Publish(0, 1300);
  ASSERT_TRUE(Eventually([&] { return worker_->snapshot().counts.postponed == 2; }));
  EXPECT_EQ(Ask(1201).outcome, protocol::ClockOutcome::kRefused) << "it does not wait";
  // A request for the current clock needs no change.
  Ask(1410);
  EXPECT_EQ(gpu_.history().size(), 3U);
}

TEST_F(LimitedChangesTest, RestoringDoesNotWait) {
  Start(WhenOverridden::kYield, kAlmostNone);
  Ask(1000);
  publisher_->Publish(0, 900);
  ASSERT_TRUE(Eventually([&] { return worker_->snapshot().counts.postponed == 1; }));
  EndLease();
  EXPECT_EQ(gpu_.setting(kSm), std::nullopt);
}

TEST_F(LimitedChangesTest, AWaitingRequestIsServedInTheEnd) {
  Start(WhenOverridden::kYield, 50);
  for (int i = 0; i < 60; ++i) {
    Ask(1000);
    Ask(900);
  }
  EXPECT_EQ(gpu_.history().size(), 120U);
  EXPECT_EQ(gpu_.setting(kSm), (device::Setting{900, 900}));
}

TEST_F(LimitedChangesTest, AHigherLimitServesAWaitingRequest) {
  Start(WhenOverridden::kYield, kAlmostNone);
  Ask(1000);
  publisher_->Publish(0, 900);
  ASSERT_TRUE(Eventually([&] { return worker_->snapshot().counts.postponed == 1; }));
  worker_->LimitChanges(1000);
  EXPECT_TRUE(IsSoonAt(900));
}

// The bucket holds one change for any limit, and stays as full as it was.
TEST_F(LimitedChangesTest, ALowerLimitLeavesNotMoreThanItsBucketHolds) {
  Start(WhenOverridden::kYield, 1000);
  Ask(1000);
  worker_->LimitChanges(kAlmostNone);
  Ask(1200);
  publisher_->Publish(0, 900);
  ASSERT_TRUE(Eventually([&] { return worker_->snapshot().counts.postponed == 1; }));
  worker_->LimitChanges(0);
  EXPECT_TRUE(IsSoonAt(900));
  for (int i = 0; i < 3; ++i) {
    Ask(1000);
    Ask(900);
  }
  worker_->LimitChanges(kAlmostNone);
  Ask(1200);
  publisher_->Publish(0, 1000);
  EXPECT_TRUE(Eventually([&] { return worker_->snapshot().counts.postponed == 2; }));
}

TEST_F(LimitedChangesTest, ALeaseIsOverTheLimitIfMoreThanATenthOfItsRequestsWait) {
  Start(WhenOverridden::kYield, kAlmostNone);
  for (int request = 1; request <= 20; ++request) Ask(1000);
  for (std::uint32_t waited = 1; waited <= 3; ++waited) {
    publisher_->Publish(0, 900);
    EXPECT_TRUE(Eventually([&] { return publisher_->postponed(0) == waited; }));
    EXPECT_EQ(worker_->snapshot().is_over_limit, waited == 3) << "of 21, 23 and 25 requests";
    Ask(1200);
  }
  EndLease();
  EXPECT_FALSE(worker_->snapshot().is_over_limit);
}

// The observer of a free GPU may sleep for a very long time.
TEST(GpuWorkerObserverTest, ReadsOftenFromTheBeginningOfALease) {
  FakeGpu gpu("GPU-a");
  const auto never = std::chrono::milliseconds(3'600'000);
  for (int attempt = 0; attempt < 20; ++attempt) {
    GpuWorker worker(gpu.Open(),
                     {.observe_serving = std::chrono::milliseconds(1), .observe_free = never});
    ASSERT_TRUE(Eventually([&] { return worker.snapshot().telemetry.has_value(); }));
    worker.Serve(std::make_shared<protocol::ClockChannel>(*protocol::ClockChannel::Create(1)), 0,
                 std::nullopt);
    gpu.Break(device::DeviceErrorKind::kFailed, "no reading");
    ASSERT_TRUE(Eventually([&] { return !worker.snapshot().reading_trouble.empty(); }));
    gpu.Repair();
    ASSERT_TRUE(Eventually([&] { return worker.snapshot().reading_trouble.empty(); }));
  }
}

TEST_F(GpuWorkerTest, SetsTheClockAgainAfterAReloadOfTheDriver) {
  worker_.Serve(channel_, 0, std::nullopt);
  Ask(1200);
  gpu_.Break(device::DeviceErrorKind::kGone, "the driver is gone");
  ASSERT_TRUE(Eventually([&] { return !worker_.snapshot().reading_trouble.empty(); }));
  // A reload of the driver removes the setting in the same way.
  gpu_.Set(device::Control::kSmClock, std::nullopt);
  gpu_.Repair();
  Ask(1200);
  EXPECT_EQ(gpu_.setting(device::Control::kSmClock), (device::Setting{1200, 1200}));
}

TEST_F(GpuWorkerTest, TheClockInEffectStaysAfterARefusal) {
  worker_.Serve(channel_, 0, std::nullopt);
  Ask(1200);
  EXPECT_TRUE(Eventually(
      [&] { return publisher_->answer(0).outcome == protocol::ClockOutcome::kInEffect; }));
  EXPECT_EQ(Ask(9999).outcome, protocol::ClockOutcome::kRefused);
  EXPECT_EQ(Ask(1200).outcome, protocol::ClockOutcome::kInEffect);
}

TEST_F(GpuWorkerTest, AFailedSwitchIsReportedAndTheNextOneTried) {
  worker_.Serve(channel_, 0, std::nullopt);
  gpu_.FailNext(device::Control::kSmClock, 1, device::DeviceErrorKind::kPermission,
                "no permission");
  EXPECT_EQ(Ask(1200).outcome, protocol::ClockOutcome::kFailed);
  EXPECT_EQ(worker_.snapshot().setting_trouble, "no permission");
  // The worker must not skip the request.
  EXPECT_EQ(Ask(1200).sm_clock_mhz, 1200);
  EXPECT_EQ(worker_.snapshot().setting_trouble, "");
}

TEST_F(GpuWorkerTest, RestoresEveryControlThoughOneFails) {
  gpu_.Set(device::Control::kSmClock, device::Setting{900, 900});
  gpu_.Set(device::Control::kPowerLimit, device::Setting{200'000, 200'000});
  gpu_.FailNext(device::Control::kSmClock, 3, device::DeviceErrorKind::kFailed, "not now");
  gpu_.IgnoreNext(device::Control::kMemoryClock, 2);
  gpu_.Set(device::Control::kMemoryClock, device::Setting{1215, 1215});
  GiveBack(worker_, {{device::Control::kSmClock, device::Setting{1000, 1410}},
                     {device::Control::kMemoryClock, std::nullopt},
                     {device::Control::kPowerLimit, device::Setting{300'000, 300'000}}});
  EXPECT_EQ(gpu_.setting(device::Control::kSmClock), (device::Setting{1000, 1410}));
  EXPECT_EQ(gpu_.setting(device::Control::kMemoryClock), std::nullopt);
  EXPECT_EQ(gpu_.setting(device::Control::kPowerLimit), (device::Setting{300'000, 300'000}));
  // The first attempt already restored the power limit, although the SM clock failed before it.
  EXPECT_THAT(gpu_.history().front().control, device::Control::kMemoryClock);
  EXPECT_THAT(gpu_.history()[1].control, device::Control::kPowerLimit);
  EXPECT_EQ(worker_.snapshot().counts.restore_failures, 5U);
  EXPECT_FALSE(worker_.snapshot().is_restoring);
}

TEST_F(GpuWorkerTest, ALockThatTheDriverCannotReportIsRestoredUntilNoSignOfItRemains) {
  gpu_.HideSmClock("the clock stands low");
  gpu_.Set(device::Control::kSmClock, device::Setting{900, 900});
  gpu_.IgnoreNext(device::Control::kSmClock, 2);
  GiveBack(worker_, {{device::Control::kSmClock, std::nullopt}});
  EXPECT_EQ(gpu_.setting(device::Control::kSmClock), std::nullopt);
  EXPECT_EQ(worker_.snapshot().counts.restore_failures, 2U);
}

TEST_F(GpuWorkerTest, RestoresOnceTheDriverReturns) {
  gpu_.Set(device::Control::kSmClock, device::Setting{900, 900});
  gpu_.Break(device::DeviceErrorKind::kGone, "the driver is gone");
  std::atomic<bool> is_back = false;
  worker_.Restore({{device::Control::kSmClock, std::nullopt}}, [&] { is_back = true; });
  ASSERT_TRUE(Eventually([&] { return worker_.snapshot().counts.restore_failures > 2; }));
  EXPECT_THAT(worker_.snapshot().setting_trouble, HasSubstr("gone"));
  EXPECT_FALSE(is_back);
  gpu_.Repair();
  EXPECT_TRUE(Eventually([&] { return is_back.load(); }));
  EXPECT_EQ(gpu_.setting(device::Control::kSmClock), std::nullopt);
  EXPECT_TRUE(Eventually([&] { return worker_.snapshot().reading_trouble.empty(); }));
}

TEST_F(GpuWorkerTest, ServesNoRequestOnceItRestores) {
  worker_.Serve(channel_, 0, std::nullopt);
  Ask(1200);
  GiveBack(worker_, {{device::Control::kSmClock, std::nullopt}});
  const std::size_t writes = gpu_.history().size();
  publisher_->Publish(0, 1000);
  // If the next request is served, the worker has run.
  std::atomic<bool> has_come_by = false;
  worker_.Find([&](const auto&) { has_come_by = true; });
  ASSERT_TRUE(Eventually([&] { return has_come_by.load(); }));
  EXPECT_EQ(gpu_.history().size(), writes);
}

TEST_F(GpuWorkerTest, ReadsTheSettings) {
  gpu_.Set(device::Control::kPowerLimit, device::Setting{250'000, 250'000});
  std::atomic<bool> is_done = false;
  GpuWorker::Found found;
  worker_.Find([&](const device::DeviceResult<GpuWorker::Found>& result) {
    found = *result;
    is_done = true;
  });
  ASSERT_TRUE(Eventually([&] { return is_done.load(); }));
  EXPECT_EQ(found[static_cast<std::size_t>(device::Control::kPowerLimit)].setting,
            (device::Setting{250'000, 250'000}));
  EXPECT_EQ(found[static_cast<std::size_t>(device::Control::kSmClock)].setting, std::nullopt);
}

TEST(LatencyHistogram, CountsByUpperBound) {
  LatencyHistogram histogram;
  histogram.Add(5'000);
  histogram.Add(5'001);
  histogram.Add(20'000'000'000);
  EXPECT_EQ(histogram.counts()[0], 1U);
  EXPECT_EQ(histogram.counts()[1], 1U);
  EXPECT_EQ(histogram.counts().back(), 1U);
  EXPECT_EQ(histogram.count(), 3U);
  EXPECT_EQ(histogram.sum(), 20'000'010'001);
}

}  // namespace
}  // namespace perseus::agent
