// Tests the small parts: targets, traces, addresses, messages, events, and the limits of
// admission.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perseus/cluster/http/admission.h"
#include "perseus/cluster/http/client.h"
#include "perseus/cluster/http/client_connection.h"
#include "perseus/cluster/http/event_parser.h"
#include "perseus/cluster/http/request_reader.h"
#include "perseus/cluster/http/response_text.h"
#include "perseus/cluster/http/target.h"

namespace perseus::http {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

TEST(Target, IsTakenApart) {
  EXPECT_EQ(ParseTarget("/?limit=5&x=1&limi%74=5")->repeated, "limit");
  EXPECT_FALSE(ParseTarget("/?limit=5&x=5&&")->repeated);
  const auto target = ParseTarget("/v1/a%2Fb%20c/%c3%a9?limit=5&x=1+2%26&limit=7&empty&=&&");
  ASSERT_TRUE(target) << target.error().Message();
  EXPECT_EQ(target->encoded_path, "/v1/a%2Fb%20c/%c3%a9");
  EXPECT_EQ(target->path, "/v1/a/b c/\u00e9");
  EXPECT_THAT(target->query,
              ElementsAre(Pair("", ""), Pair("empty", ""), Pair("limit", "7"), Pair("x", "1 2&")));
  EXPECT_EQ(ParseTarget("http://perseus:7410/a?b=c")->path, "/a");
  EXPECT_EQ(ParseTarget("http://perseus")->path, "/");
  EXPECT_EQ(ParseTarget("/a://b")->path, "/a://b");
}

TEST(Target, IsRefusedForWhatCannotBeDecoded) {
  for (const char* target : {"", "*", "a", "perseus:7410", "/%", "/%4", "/%zz", "/a%00b", "/%0a",
                             "/%7f", "/%ff", "/%c0%af", "/%ed%a0%80", "/%f4%90%80%80", "/%c3",
                             "/%e2%82", "/?a=%zz", "/?%00=1", "/?a=%ff"}) {
    EXPECT_FALSE(ParseTarget(target)) << target;
  }
  EXPECT_TRUE(ParseTarget("/?a=%0a"));  // A query value may have several lines.
}

TEST(PercentEncoded, IsWhatDecodingUndoes) {
  const std::string text = "a/b c%\u00e9?&=+~-._Z9";
  EXPECT_EQ(PercentEncoded(text), "a%2Fb%20c%25%C3%A9%3F%26%3D%2B~-._Z9");
  EXPECT_EQ(PercentDecoded(PercentEncoded(text)), text);
}

TEST(Trace, IsTakenOnlyToTheLetter) {
  const std::string trace = "0af7651916cd43dd8448eb211c80319c";
  const std::string good = "00-" + trace + "-b7ad6b7169203331-01";
  EXPECT_EQ(ParseTraceParent(good), trace);
  EXPECT_EQ(ParseTraceParent("01-" + trace + "-b7ad6b7169203331-01-more"), trace);
  for (const std::string& bad : std::vector<std::string>{
           "", good + "-more", good + "0", "ff" + good.substr(2), "0" + good, good.substr(0, 54),
           "0G" + good.substr(2), "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
           "00-00000000000000000000000000000000-b7ad6b7169203331-01",
           "00-" + trace + "-0000000000000000-01", "00_" + good.substr(3)}) {
    EXPECT_EQ(ParseTraceParent(bad), std::nullopt) << bad;
  }
}

TEST(ServerUrls, AreSeparatedByCommas) {
  const auto urls = ParseServerUrls("http://a,https://b:1/,http://[::1]");
  ASSERT_TRUE(urls) << urls.error().Message();
  ASSERT_EQ(urls->size(), 3u);
  EXPECT_EQ((*urls)[0].text, "http://a:7410");
  EXPECT_TRUE((*urls)[1].is_tls);
  EXPECT_EQ((*urls)[1].at.port, 1);
  EXPECT_EQ((*urls)[2].at.host, "::1");
  for (const char* bad :
       {"", "a:1", "ftp://a", "http://", "http://a:0", "http://a/b", "http://a,"}) {
    EXPECT_FALSE(ParseServerUrls(bad)) << bad;
  }
}

TEST(Problem, IsADocument) {
  const Response response =
      ProblemResponse({400, "Not a job", "\"x\xff\" is none", "/kind", "say y"});
  EXPECT_EQ(response.content_type, "application/problem+json");
  EXPECT_EQ(response.body,
            "{\"type\":\"about:blank\",\"title\":\"Not a job\",\"status\":400,"
            "\"detail\":\"\\\"x\ufffd\\\" is none\",\"pointer\":\"/kind\",\"remedy\":\"say y\"}\n");
}

TEST(ResponseHead, KeepsEachFieldToItsLine) {
  Response response;
  response.fields = {{"Location", "/a\r\nSet-Cookie: b"}};
  const std::string head = ResponseHead(response, Afterwards::kKeep);
  EXPECT_THAT(head, HasSubstr("\r\nLocation: /a  Set-Cookie: b\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("Connection: close")));
  response.status = 204;
  EXPECT_THAT(ResponseHead(response, Afterwards::kClose), Not(HasSubstr("Content-")));
}

std::vector<Event> Parsed(std::string_view text, std::size_t piece) {
  EventParser parser;
  std::vector<Event> events;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    const auto put = parser.Put(text.substr(0, piece));
    events.insert(events.end(), put->begin(), put->end());
  }
  return events;
}

testing::Matcher<Event> IsEvent(const std::string& name, const std::string& id,
                                const std::string& data) {
  return testing::AllOf(testing::Field("name", &Event::name, name),
                        testing::Field("id", &Event::id, id),
                        testing::Field("data", &Event::data, data));
}

TEST(EventParser, ReadsWhatTheStandardSays) {
  const std::string text =
      "\xef\xbb\xbf: a comment\n\n"
      "event: assignment\r\nid: 7\r\ndata: one\r\ndata:  two\r\nretry: 5\r\n\r\n"
      "data\rdata\r\r"
      "event: without data\n\n"
      "data:x\nunknown: y\n\n"
      "data: never ended\n";
  for (const std::size_t piece : {std::size_t{1}, std::size_t{2}, std::size_t{3}, text.size()}) {
    EXPECT_THAT(Parsed(text, piece), ElementsAre(IsEvent("assignment", "7", "one\n two"),
                                                 IsEvent("", "", "\n"), IsEvent("", "", "x")))
        << piece;
  }
}

TEST(EventParser, RemembersTheLastId) {
  EventParser parser("before");
  ASSERT_TRUE(parser.Put("data: a\n\n"));
  EXPECT_EQ(parser.last_id(), "before");
  ASSERT_TRUE(parser.Put("id: 1\n"));
  EXPECT_EQ(parser.last_id(), "before");  // A new id counts only after its event is complete.
  ASSERT_TRUE(parser.Put("\n"));
  EXPECT_EQ(parser.last_id(), "1");
  ASSERT_TRUE(parser.Put(std::string_view("id: 2\0\ndata: b\n\n", 16)));
  EXPECT_EQ(parser.last_id(), "1");
  ASSERT_TRUE(parser.Put("id\ndata: c\n\n"));
  EXPECT_EQ(parser.last_id(), "");
}

TEST(ConnectionCounter, CountsThoseThatStay) {
  ConnectionCounter counter({3, 2});
  const auto first = counter.Enter("192.0.2.1");
  auto second = counter.Enter("192.0.2.1");
  EXPECT_TRUE(first && second);
  EXPECT_FALSE(counter.Enter("192.0.2.1"));
  const auto other = counter.Enter("192.0.2.2");
  EXPECT_TRUE(other);
  EXPECT_FALSE(counter.Enter("192.0.2.3"));
  EXPECT_EQ(counter.count(), 3);
  second.reset();
  EXPECT_TRUE(counter.Enter("192.0.2.3"));
  EXPECT_EQ(counter.count(), 2);
}

TEST(ConnectionCounter, TakesANetworkOfIpV6ForOne) {
  ConnectionCounter counter({9, 1});
  const auto first = counter.Enter("2001:db8:0:1::1");
  EXPECT_FALSE(counter.Enter("2001:db8:0:1:2:3:4:5"));
  EXPECT_TRUE(counter.Enter("2001:db8:0:2::1"));
}

TEST(RateLimiter, LetsBurstsThroughAndThenSoManyASecond) {
  RateLimiter limiter(2);
  auto now = RateLimiter::Clock::time_point();
  EXPECT_EQ(limiter.TimeToWait("a", now), std::nullopt);
  EXPECT_EQ(limiter.TimeToWait("a", now), std::nullopt);
  EXPECT_EQ(limiter.TimeToWait("a", now), milliseconds(500));
  EXPECT_EQ(limiter.TimeToWait("b", now), std::nullopt);
  EXPECT_EQ(limiter.TimeToWait("a", now += milliseconds(400)), milliseconds(100));
  EXPECT_EQ(limiter.TimeToWait("a", now += milliseconds(100)), std::nullopt);
  EXPECT_NE(limiter.TimeToWait("a", now), std::nullopt);
  now += std::chrono::hours(1);
  EXPECT_EQ(limiter.TimeToWait("a", now), std::nullopt);
  EXPECT_EQ(limiter.TimeToWait("a", now), std::nullopt);
  EXPECT_NE(limiter.TimeToWait("a", now),
            std::nullopt);  // After an hour without requests, the bucket is full, but has no more
                            // tokens than that.
}

TEST(RateLimiter, LetsACostlyRequestThroughWhenNothingElseWasSpent) {
  RateLimiter limiter(10, 100);
  auto now = RateLimiter::Clock::time_point();
  EXPECT_EQ(limiter.TimeToWait("a", now, 150), std::nullopt);
  // The bucket has -50 tokens, and a request needs 1.
  EXPECT_EQ(limiter.TimeToWait("a", now), std::chrono::milliseconds(5100));
  now += std::chrono::milliseconds(5100);
  EXPECT_EQ(limiter.TimeToWait("a", now), std::nullopt);
  EXPECT_EQ(limiter.TimeToWait("a", now, 150), std::chrono::milliseconds(10'000));
}

TEST(RateLimiter, RemembersOnlySoMany) {
  RateLimiter limiter(1);
  const auto now = RateLimiter::Clock::time_point();
  EXPECT_EQ(limiter.TimeToWait("first", now), std::nullopt);
  for (int i = 0; i < 30'000; ++i) {
    ASSERT_EQ(limiter.TimeToWait(std::to_string(i), now), std::nullopt);
    ASSERT_NE(limiter.TimeToWait("first", now),
              std::nullopt);  // An address that keeps sending requests is remembered.
  }
  EXPECT_EQ(limiter.remembered(), 20'000u);
}

}  // namespace
}  // namespace perseus::http
