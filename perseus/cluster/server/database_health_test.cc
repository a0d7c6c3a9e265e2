#include "perseus/cluster/server/database_health.h"

#include <gtest/gtest.h>

namespace perseus::server {
namespace {

using Change = DatabaseHealth::Change;

constexpr DatabaseHealth::Time kStart{std::chrono::hours(1)};

Change Ping(DatabaseHealth& health, bool succeeded) {
  EXPECT_TRUE(health.StartCheck());
  health.PingSent(kStart);
  const Change change = health.PingAnswered(succeeded);
  health.EndCheck();
  return change;
}

TEST(DatabaseHealth, EachChangeIsReportedOnce) {
  DatabaseHealth health;
  EXPECT_TRUE(health.is_available());
  EXPECT_EQ(Ping(health, true), Change::kNone);
  EXPECT_EQ(Ping(health, false), Change::kBecameUnavailable);
  EXPECT_FALSE(health.is_available());
  EXPECT_EQ(Ping(health, false), Change::kNone);
  EXPECT_EQ(Ping(health, true), Change::kBecameAvailable);
  EXPECT_TRUE(health.is_available());
}

TEST(DatabaseHealth, SilenceMakesItUnavailableUntilAnAnswer) {
  DatabaseHealth health;
  const DatabaseHealth::Time end = kStart + DatabaseHealth::kSilence;
  ASSERT_TRUE(health.StartCheck());
  EXPECT_EQ(health.CheckSilence(end), Change::kNone) << "no ping was sent yet";
  health.PingSent(kStart);
  EXPECT_FALSE(health.StartCheck()) << "one check at a time";
  EXPECT_EQ(health.CheckSilence(end - std::chrono::seconds(1)), Change::kNone);
  EXPECT_EQ(health.CheckSilence(end), Change::kBecameUnavailable);
  EXPECT_EQ(health.CheckSilence(end), Change::kNone);
  EXPECT_EQ(health.PingAnswered(true), Change::kBecameAvailable);
  EXPECT_EQ(health.CheckSilence(end), Change::kNone) << "no ping is waiting";
}

TEST(DatabaseHealth, StreamsAreReadAgainAfterAnOutageOrARequest) {
  DatabaseHealth health;
  EXPECT_FALSE(health.TakeReread());
  health.RequestReread();
  EXPECT_TRUE(health.TakeReread());
  EXPECT_FALSE(health.TakeReread());
  Ping(health, false);
  Ping(health, true);
  EXPECT_TRUE(health.TakeReread());
}

}  // namespace
}  // namespace perseus::server
