// Requests clocks over a real channel.
#include "perseus/runtime/client/clock_requester.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "perseus/base/clock.h"

namespace perseus::client {
namespace {

class ClockRequesterTest : public testing::Test {
 protected:
  ClockRequesterTest() : channel_(*protocol::ClockChannel::Create(1)) {
    requester_.UseLease(MakeLease());
  }

  std::unique_ptr<Lease> MakeLease() {
    std::vector<FileDescriptor> passed;
    for (const int fd : channel_.descriptors()) {
      passed.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    }
    return std::make_unique<Lease>(
        Lease{"1", {900, 1005, 1410}, *protocol::ClockPublisher::Attach(std::move(passed))});
  }
  int Latest() const { return channel_.Latest(0).sm_clock_mhz; }

  protocol::ClockChannel channel_;
  ClockRequester requester_;
};

TEST_F(ClockRequesterTest, AsksOnlyForWhatIsNotAskedForYet) {
  EXPECT_TRUE(requester_.TryRequest(0, MonotonicNow()));
  EXPECT_EQ(requester_.requests(), 0U);
  EXPECT_TRUE(requester_.TryRequest(900, MonotonicNow()));
  EXPECT_TRUE(requester_.TryRequest(900, MonotonicNow()));
  EXPECT_EQ(requester_.requests(), 1U);
  EXPECT_EQ(Latest(), 900);
  EXPECT_TRUE(requester_.TryRequest(0, MonotonicNow()));
  EXPECT_EQ(requester_.requests(), 2U);
  EXPECT_EQ(Latest(), 0);
}

TEST_F(ClockRequesterTest, TakesTheNearestFasterClock) {
  requester_.TryRequest(901, MonotonicNow());
  EXPECT_EQ(Latest(), 1005);
  EXPECT_EQ(requester_.published_mhz(), 1005);
  EXPECT_EQ(requester_.lacking_mhz(), 901);
  requester_.TryRequest(1005, MonotonicNow());  // The same one.
  EXPECT_EQ(requester_.requests(), 1U);
  requester_.TryRequest(9999, MonotonicNow());
  EXPECT_EQ(Latest(), 1410);
}

TEST_F(ClockRequesterTest, RecordsWhatWasAsked) {
  requester_.TryRequest(900, MonotonicNow());
  requester_.TryRequest(1410, MonotonicNow());
  const auto first = requester_.published().Pop().value();
  EXPECT_EQ(first.frequency_mhz, 900);
  EXPECT_EQ(first.sequence, 1U);
  EXPECT_EQ(requester_.published().Pop()->sequence, 2U);
  EXPECT_FALSE(requester_.published().Pop());
}

TEST_F(ClockRequesterTest, WithoutALeaseNothingIsAsked) {
  requester_.TryRequest(900, MonotonicNow());
  EXPECT_NE(requester_.UseLease(nullptr), nullptr);
  EXPECT_FALSE(requester_.may_set_clocks());
  EXPECT_TRUE(requester_.TryRequest(1410, MonotonicNow()));
  EXPECT_EQ(requester_.requests(), 1U);
  EXPECT_EQ(requester_.published_mhz(), 0);
  // A new lease has no request yet.
  requester_.UseLease(MakeLease());
  EXPECT_TRUE(requester_.TryRequest(900, MonotonicNow()));
  EXPECT_EQ(requester_.requests(), 2U);
}

TEST_F(ClockRequesterTest, RestsOnlyWhileNobodyTrains) {
  std::atomic<bool> is_in_step = true;
  requester_.TryRequest(900, MonotonicNow());
  requester_.Rest(is_in_step, MonotonicNow());
  EXPECT_EQ(Latest(), 900);
  is_in_step = false;
  const std::uint32_t resets = requester_.resets();
  requester_.Rest(is_in_step, MonotonicNow());
  EXPECT_EQ(Latest(), 0);
  EXPECT_NE(requester_.resets(), resets);
  requester_.Rest(is_in_step, MonotonicNow());
  EXPECT_EQ(requester_.requests(), 2U);
}

// Three threads request clocks while the lease comes and goes. The thread sanitizer reports no
// race, and no request is a mixture of two.
TEST_F(ClockRequesterTest, ManyMayAskAtATime) {
  std::atomic<bool> is_over = false;
  const auto ask = [&](int clock) {
    while (!is_over) {
      requester_.TryRequest(clock, MonotonicNow());
      requester_.TryRequest(0, MonotonicNow());
    }
  };
  std::thread first(ask, 900);
  std::thread second(ask, 1410);
  const std::atomic<bool> is_in_step = false;
  for (int i = 0; i < 200; ++i) {
    requester_.Rest(is_in_step, MonotonicNow());
    while (requester_.published().Pop()) {
    }
    if (i % 10 == 0) requester_.UseLease(i % 20 == 0 ? nullptr : MakeLease());
    const int latest = Latest();
    EXPECT_TRUE(latest == 0 || latest == 900 || latest == 1410) << latest;
  }
  is_over = true;
  first.join();
  second.join();
}

}  // namespace
}  // namespace perseus::client
