// Asking for clocks, over a real channel.
#include "perseus/runtime/client/clock_requester.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "perseus/base/clock.h"

namespace perseus::client {
namespace {

class ClockRequesterTest : public testing::Test {
 protected:
  ClockRequesterTest() : channel_(*protocol::ClockChannel::Create(1)) {
    asker_.UseLease(MakeLease());
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
  ClockRequester asker_;
};

TEST_F(ClockRequesterTest, AsksOnlyForWhatIsNotAskedForYet) {
  EXPECT_TRUE(asker_.TryAsk(0, MonotonicNow()));
  EXPECT_EQ(asker_.requests(), 0U);
  EXPECT_TRUE(asker_.TryAsk(900, MonotonicNow()));
  EXPECT_TRUE(asker_.TryAsk(900, MonotonicNow()));
  EXPECT_EQ(asker_.requests(), 1U);
  EXPECT_EQ(Latest(), 900);
  EXPECT_TRUE(asker_.TryAsk(0, MonotonicNow()));
  EXPECT_EQ(asker_.requests(), 2U);
  EXPECT_EQ(Latest(), 0);
}

TEST_F(ClockRequesterTest, TakesTheNearestFasterClock) {
  asker_.TryAsk(901, MonotonicNow());
  EXPECT_EQ(Latest(), 1005);
  EXPECT_EQ(asker_.published_mhz(), 1005);
  EXPECT_EQ(asker_.lacking_mhz(), 901);
  asker_.TryAsk(1005, MonotonicNow());  // The same one.
  EXPECT_EQ(asker_.requests(), 1U);
  asker_.TryAsk(9999, MonotonicNow());
  EXPECT_EQ(Latest(), 1410);
}

TEST_F(ClockRequesterTest, RecordsWhatWasAsked) {
  asker_.TryAsk(900, MonotonicNow());
  asker_.TryAsk(1410, MonotonicNow());
  const auto first = asker_.asks().Pop();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->frequency_mhz, 900);
  EXPECT_EQ(first->sequence, 1U);
  EXPECT_EQ(asker_.asks().Pop()->sequence, 2U);
  EXPECT_FALSE(asker_.asks().Pop());
}

TEST_F(ClockRequesterTest, WithoutALeaseNothingIsAsked) {
  asker_.TryAsk(900, MonotonicNow());
  EXPECT_NE(asker_.UseLease(nullptr), nullptr);
  EXPECT_FALSE(asker_.may_set_clocks());
  EXPECT_TRUE(asker_.TryAsk(1410, MonotonicNow()));
  EXPECT_EQ(asker_.requests(), 1U);
  EXPECT_EQ(asker_.published_mhz(), 0);
  // A new one knows of nothing.
  asker_.UseLease(MakeLease());
  EXPECT_TRUE(asker_.TryAsk(900, MonotonicNow()));
  EXPECT_EQ(asker_.requests(), 2U);
}

TEST_F(ClockRequesterTest, RestsOnlyWhileNobodyTrains) {
  std::atomic<bool> is_in_step = true;
  asker_.TryAsk(900, MonotonicNow());
  asker_.Rest(is_in_step, MonotonicNow());
  EXPECT_EQ(Latest(), 900);
  is_in_step = false;
  const std::uint32_t resets = asker_.resets();
  asker_.Rest(is_in_step, MonotonicNow());
  EXPECT_EQ(Latest(), 0);
  EXPECT_NE(asker_.resets(), resets);
  asker_.Rest(is_in_step, MonotonicNow());
  EXPECT_EQ(asker_.requests(), 2U);
}

// Three threads ask at a time, and the lease comes and goes: the thread sanitizer looks on, and no
// request is a mixture.
TEST_F(ClockRequesterTest, ManyMayAskAtATime) {
  std::atomic<bool> is_over = false;
  const auto ask = [&](int clock) {
    while (!is_over) {
      asker_.TryAsk(clock, MonotonicNow());
      asker_.TryAsk(0, MonotonicNow());
    }
  };
  std::thread first(ask, 900);
  std::thread second(ask, 1410);
  const std::atomic<bool> is_in_step = false;
  for (int i = 0; i < 200; ++i) {
    asker_.Rest(is_in_step, MonotonicNow());
    while (asker_.asks().Pop()) {
    }
    if (i % 10 == 0) asker_.UseLease(i % 20 == 0 ? nullptr : MakeLease());
    const int latest = Latest();
    EXPECT_TRUE(latest == 0 || latest == 900 || latest == 1410) << latest;
  }
  is_over = true;
  first.join();
  second.join();
}

}  // namespace
}  // namespace perseus::client
