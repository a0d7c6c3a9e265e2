#include "perseus/cluster/node/uplink.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/ostream_sink.h>

#include <memory>
#include <sstream>
#include <string>

namespace perseus::node {
namespace {

TEST(Uplink, WaitsAsLongAsAnOverloadedServerAsks) {
  http::Response answer{.status = 429, .fields = {{"retry-after", "3"}}};
  spdlog::logger log("test", std::make_shared<spdlog::sinks::null_sink_mt>());
  Uplink uplink([&](const http::Client::Outgoing&) -> Result<http::Response> { return answer; },
                log);
  ASSERT_TRUE(uplink.Request({}, kSecond));
  EXPECT_FALSE(uplink.IsUsable(4 * kSecond - 1));
  EXPECT_TRUE(uplink.IsUsable(4 * kSecond));
  answer = {.status = 503, .fields = {{"retry-after", "86400"}}};
  ASSERT_TRUE(uplink.Request({}, 0));
  EXPECT_TRUE(uplink.IsUsable(30 * kSecond)) << "a server cannot silence a node for long";
  answer = {.status = 429, .fields = {{"retry-after", "-5"}}};
  ASSERT_TRUE(uplink.Request({}, 0));
  EXPECT_TRUE(uplink.IsUsable(0));
  answer = {.status = 200, .fields = {{"retry-after", "3"}}};
  ASSERT_TRUE(uplink.Request({}, 0));
  EXPECT_TRUE(uplink.IsUsable(0));
}

// A server sends a flood of invalid events, or a user writes a flood of invalid lines.
TEST(Uplink, RemembersALimitedNumberOfWarnings) {
  std::ostringstream logged;
  spdlog::logger log("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(logged));
  Uplink uplink([](const http::Client::Outgoing&) { return http::Response(); }, log);
  const auto count = [&](const std::string& about) {
    logged.str("");
    uplink.WarnOnce(about, "trouble");
    return logged.str().empty() ? 0 : 1;
  };
  EXPECT_EQ(count("first"), 1);
  EXPECT_EQ(count("first"), 0);
  uplink.Recovered("first");
  EXPECT_EQ(count("first"), 1);
  for (std::size_t i = 0; i < Uplink::kMostWarned; ++i) uplink.WarnOnce(std::to_string(i), "");
  EXPECT_EQ(count("999"), 0);
  EXPECT_EQ(count("first"), 1) << "it was forgotten";
}

TEST(Uplink, ATextIsEmptyIfTheAnswerDoesNotHaveIt) {
  EXPECT_EQ(TextOf({.body = R"({"job":"j-1","more":1})"}, "job"), "j-1");
  for (const char* body : {"", "{}", "[]", R"({"job":7})"}) {
    EXPECT_EQ(TextOf({.body = body}, "job"), "");
  }
}

}  // namespace
}  // namespace perseus::node
