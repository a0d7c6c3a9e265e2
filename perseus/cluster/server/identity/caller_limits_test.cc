#include "perseus/cluster/server/identity/caller_limits.h"

#include <gmock/gmock.h>

namespace perseus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr CallerLimits::Clock::time_point kLimitsStart{};

Identity TokenNamed(const std::string& id) {
  Identity identity;
  identity.token = id;
  return identity;
}
http::Request From(const std::string& peer) {
  http::Request request;
  request.peer = peer;
  return request;
}
http::Request WithBody(const std::string& body) {
  http::Request request = From("10.0.0.1");
  request.body = body;
  return request;
}

TEST(CallerLimits, EachTokenHasItsOwnRate) {
  CallerLimits limits({.requests_per_second = 2});
  const http::Request request = From("10.0.0.1");
  for (int i = 0; i < 20; ++i)
    EXPECT_TRUE(limits.Spend(TokenNamed("t-a"), "", request, kLimitsStart));
  const auto refused = limits.Spend(TokenNamed("t-a"), "", request, kLimitsStart);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 429);
  EXPECT_EQ(refused.error().retry_after_s, 1);
  EXPECT_THAT(refused.error().detail, HasSubstr("this token sent more than 2 requests"));
  EXPECT_TRUE(limits.Spend(TokenNamed("t-b"), "", request, kLimitsStart));
  EXPECT_TRUE(limits.Spend(TokenNamed("t-a"), "", request, kLimitsStart + milliseconds(500)));
}

TEST(CallerLimits, NodesOfOneTokenAreDifferentCallers) {
  CallerLimits limits({.requests_per_second = 0.1});
  const http::Request request = From("10.0.0.1");
  EXPECT_TRUE(limits.Spend(TokenNamed("t-a"), "n0", request, kLimitsStart));
  EXPECT_TRUE(limits.Spend(TokenNamed("t-a"), "n1", request, kLimitsStart));
  EXPECT_FALSE(limits.Spend(TokenNamed("t-a"), "n1", request, kLimitsStart));
}

TEST(CallerLimits, GuessesOfTokensCountForTheirAddress) {
  CallerLimits limits({.requests_per_second = 0.1});
  EXPECT_TRUE(limits.SpendUnknown(From("2001:db8::1"), kLimitsStart));
  EXPECT_FALSE(limits.SpendUnknown(From("2001:db8::2"), kLimitsStart)) << "the same /64";
  EXPECT_TRUE(limits.SpendUnknown(From("2001:db8:0:1::2"), kLimitsStart));
  EXPECT_TRUE(limits.Spend(Identity(), "", From("2001:db8::1"), kLimitsStart))
      << "they do not use up the rate of valid callers";
}

TEST(CallerLimits, BodiesHaveARate) {
  CallerLimits limits({.bytes_per_second = 100});
  EXPECT_TRUE(limits.Spend(TokenNamed("t-a"), "", WithBody(std::string(5000, ' ')), kLimitsStart))
      << "a large body is allowed if nothing else was sent";
  const auto refused = limits.Spend(TokenNamed("t-a"), "", WithBody("x"), kLimitsStart);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().detail, HasSubstr("100 bytes"));
  EXPECT_EQ(refused.error().retry_after_s, 41);
  EXPECT_TRUE(limits.Spend(TokenNamed("t-a"), "", WithBody(""), kLimitsStart));
}

TEST(CallerLimits, AJobHasARateOfChanges) {
  CallerLimits limits({.requests_per_second = 0.1});
  EXPECT_TRUE(limits.SpendOfJob("j-1", kLimitsStart));
  EXPECT_FALSE(limits.SpendOfJob("j-1", kLimitsStart));
  EXPECT_TRUE(limits.SpendOfJob("j-2", kLimitsStart));
}

TEST(CallerLimits, NoLimitIsTheDefault) {
  CallerLimits limits({});
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(limits.Spend(TokenNamed("t-a"), "", WithBody("body"), kLimitsStart));
  }
}

TEST(WaitingRequests, AreRefusedWhenTheyWouldWaitForLong) {
  WaitingRequests waiting;
  const auto entered = WaitingRequests::Clock::time_point();
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(waiting.Enter(Access::kNode));
  waiting.Begin(entered, entered + WaitingRequests::kMostOfNodes);
  EXPECT_TRUE(waiting.Enter(Access::kNode));
  waiting.Begin(entered, entered + WaitingRequests::kMostOfNodes + milliseconds(1));
  const auto refused = waiting.Enter(Access::kNode);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 429);
  EXPECT_EQ(refused.error().retry_after_s, 1);
  EXPECT_EQ(waiting.refused(), 1);
  EXPECT_TRUE(waiting.Enter(Access::kOperator)) << "people come before nodes";
  waiting.Begin(entered, entered + seconds(3));
  EXPECT_FALSE(waiting.Enter(Access::kOperator));
  // The other requests have begun, so a new request begins at once.
  while (waiting.waiting() > 0) waiting.Begin(entered, entered + seconds(3));
  EXPECT_TRUE(waiting.Enter(Access::kNode));
}

}  // namespace
}  // namespace perseus::server
