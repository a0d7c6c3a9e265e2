#include "perseus/runtime/agent/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <string>
#include <vector>

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

// More connections than the server keeps, which send nothing.
TEST(MetricsServer, AnswersBesideConnectionsThatSendNothing) {
  using boost::asio::ip::tcp;
  boost::asio::io_context loop;
  const auto server =
      MetricsServer::Listen(loop, "127.0.0.1:0", [] { return std::string("up 1\n"); });
  ASSERT_TRUE(server) << server.error().message;
  const tcp::endpoint address(boost::asio::ip::address_v4::loopback(),
                              static_cast<unsigned short>(server->port()));
  boost::asio::io_context clients;
  std::vector<tcp::socket> silent;
  for (int i = 0; i < 600; ++i) {
    silent.emplace_back(clients).connect(address);
    loop.poll();
  }
  tcp::socket scraper(clients);
  scraper.connect(address);
  boost::asio::write(scraper, boost::asio::buffer(std::string("GET /metrics HTTP/1.0\r\n\r\n")));
  scraper.non_blocking(true);
  std::string answer;
  for (boost::system::error_code error; !error;) {
    loop.poll();
    char bytes[256];
    const std::size_t size = scraper.read_some(boost::asio::buffer(bytes), error);
    answer.append(bytes, size);
    if (error == boost::asio::error::would_block) error.clear();
  }
  EXPECT_THAT(answer, testing::HasSubstr("200 OK"));
  EXPECT_THAT(answer, testing::HasSubstr("up 1"));
}

}  // namespace
}  // namespace perseus::agent
