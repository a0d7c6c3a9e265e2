#include "perseus/runtime/agent/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <string>

namespace perseus::agent {
namespace {

TEST(MetricsServer, ListensOnAnAddressAndAFreePort) {
  boost::asio::io_context loop;
  const auto server = MetricsServer::Listen(loop, "127.0.0.1:0", [] { return std::string(); });
  ASSERT_TRUE(server) << server.error().message;
  EXPECT_GT(server->port(), 0);
}

TEST(MetricsServer, RefusesWhatIsNotAnAddress) {
  boost::asio::io_context loop;
  for (const char* bad : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", ":9836",
                          "localhost:9836", "::1:9836", "[::1:9836"}) {
    const auto server = MetricsServer::Listen(loop, bad, [] { return std::string(); });
    ASSERT_FALSE(server) << bad;
    EXPECT_EQ(server.error().kind, ErrorKind::kInput) << bad;
    EXPECT_THAT(server.error().message, testing::HasSubstr("such as 127.0.0.1:9836")) << bad;
  }
}

TEST(MetricsServer, AnAddressInUseIsASystemFailure) {
  boost::asio::io_context loop;
  const auto first = MetricsServer::Listen(loop, "127.0.0.1:0", [] { return std::string(); });
  ASSERT_TRUE(first);
  const auto second = MetricsServer::Listen(loop, "127.0.0.1:" + std::to_string(first->port()),
                                            [] { return std::string(); });
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind, ErrorKind::kSystem);
}

}  // namespace
}  // namespace perseus::agent
