#include "perseus/cluster/server/server_clock.h"

#include <gtest/gtest.h>

namespace perseus::server {
namespace {

TEST(ServerClock, CountsFromTheTimeOfDayAtItsStart) {
  Milliseconds monotonic = 500;
  const ServerClock clock(1'000'000, [&] { return monotonic; });
  EXPECT_EQ(clock.Now(), 1'000'000);
  monotonic += 20'000;
  EXPECT_EQ(clock.Now(), 1'020'000);
}

TEST(ServerClock, FollowsADatabaseClockThatWasSet) {
  Milliseconds monotonic = 0;
  ServerClock clock(1'000'000, [&] { return monotonic; });
  EXPECT_EQ(clock.Compare(1'001'500), 0) << "a small difference is no step";
  EXPECT_EQ(clock.Compare(4'600'000), 0) << "one reading may be late";
  EXPECT_EQ(clock.Compare(1'000'100), 0);
  EXPECT_EQ(clock.Compare(4'600'000), 0);
  EXPECT_EQ(clock.Compare(4'600'000), 3'600'000);
  EXPECT_EQ(clock.Now(), 4'600'000);
  EXPECT_EQ(clock.Compare(4'600'000 - 7'200'000), 0);
  EXPECT_EQ(clock.Compare(4'600'000 - 7'200'000), -7'200'000);
}

}  // namespace
}  // namespace perseus::server
