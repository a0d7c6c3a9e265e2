#include "perseus/runtime/agent/metrics_server.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/results.h"

namespace perseus::agent {
namespace {

using boost::asio::ip::tcp;

TEST(MetricsServer, ListensOnAnAddressAndAFreePort) {
  boost::asio::io_context loop;
  EXPECT_GT(
      ValueOf(MetricsServer::Listen(loop, "127.0.0.1:0", [] { return std::string(); })).port(), 0);
}

TEST(MetricsServer, RefusesWhatIsNotAnAddress) {
  boost::asio::io_context loop;
  for (const char* bad : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", ":9836",
                          "localhost:9836", "::1:9836", "[::1:9836"}) {
    EXPECT_THAT(MetricsServer::Listen(loop, bad, [] { return std::string(); }),
                FailsAs(ErrorKind::kInput, testing::HasSubstr("such as 127.0.0.1:9836")))
        << bad;
  }
}

TEST(MetricsServer, AnAddressInUseIsASystemFailure) {
  boost::asio::io_context loop;
  const auto first = MetricsServer::Listen(loop, "127.0.0.1:0", [] { return std::string(); });
  ASSERT_TRUE(first);
  EXPECT_THAT(MetricsServer::Listen(loop, "127.0.0.1:" + std::to_string(first->port()),
                                    [] { return std::string(); }),
              FailsAs(ErrorKind::kSystem));
}

// A client of a server. The server's loop runs in the same thread.
class Scraper {
 public:
  Scraper(boost::asio::io_context& loop, int port)
      : loop_(loop),
        address_(boost::asio::ip::address_v4::loopback(), static_cast<unsigned short>(port)) {}

  tcp::socket Connect() {
    tcp::socket socket(clients_);
    socket.connect(address_);
    return socket;
  }

  // Returns what the server answers until it closes the connection. Empty if the server does not
  // answer in time.
  std::string Get(tcp::socket& socket) {
    boost::asio::write(socket, boost::asio::buffer(std::string("GET /metrics HTTP/1.0\r\n\r\n")));
    socket.non_blocking(true);
    std::string answer;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < deadline) {
      loop_.run_for(std::chrono::milliseconds(1));
      std::array<char, 256> bytes;
      boost::system::error_code error;
      const std::size_t size = socket.read_some(boost::asio::buffer(bytes), error);
      answer.append(bytes.data(), size);
      if (error && error != boost::asio::error::would_block) return answer;
    }
    return {};
  }

 private:
  boost::asio::io_context& loop_;
  boost::asio::io_context clients_;
  tcp::endpoint address_;
};

// The test opens more connections than the server keeps. These connections send nothing.
TEST(MetricsServer, AnswersBesideConnectionsThatSendNothing) {
  boost::asio::io_context loop;
  const auto server =
      ValueOf(MetricsServer::Listen(loop, "127.0.0.1:0", [] { return std::string("up 1\n"); }));
  Scraper scraper(loop, server.port());
  std::vector<tcp::socket> silent;
  for (int i = 0; i < 600; ++i) {
    silent.push_back(scraper.Connect());
    loop.poll();
  }
  tcp::socket socket = scraper.Connect();
  const std::string answer = scraper.Get(socket);
  EXPECT_THAT(answer, testing::HasSubstr("200 OK"));
  EXPECT_THAT(answer, testing::HasSubstr("up 1"));
}

// A process that asks without a pause costs the agent only a little time.
TEST(MetricsServer, AnswersShortlyAfterEachOtherAreMadeOnce) {
  boost::asio::io_context loop;
  const auto clock = std::make_shared<FakeClock>();
  int made = 0;
  const auto server = ValueOf(MetricsServer::Listen(
      loop, "127.0.0.1:0", [&made] { return "made " + std::to_string(++made) + "\n"; }, clock));
  Scraper scraper(loop, server.port());
  const auto answer = [&] {
    tcp::socket socket = scraper.Connect();
    return scraper.Get(socket);
  };
  EXPECT_THAT(answer(), testing::HasSubstr("made 1"));
  clock->Advance(MetricsServer::kReuse - 1);
  EXPECT_THAT(answer(), testing::HasSubstr("made 1"));
  clock->Advance(1);
  EXPECT_THAT(answer(), testing::HasSubstr("made 2"));
}

// While this object exists, this process cannot open more files.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest_free = dup(STDIN_FILENO);
    close(lowest_free);
    const rlimit none{static_cast<rlim_t>(lowest_free), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// The connection that cannot be accepted stays in the queue, so immediate retries would never end.
TEST(MetricsServer, PausesWhileNoDescriptorIsLeft) {
  boost::asio::io_context loop;
  const auto server =
      ValueOf(MetricsServer::Listen(loop, "127.0.0.1:0", [] { return std::string("up 1\n"); }));
  Scraper scraper(loop, server.port());
  // UBSan opens a pipe when it first checks an object of a type. So each type has to occur before.
  tcp::socket earlier = scraper.Connect();
  EXPECT_THAT(scraper.Get(earlier), testing::HasSubstr("up 1"));
  tcp::socket socket = scraper.Connect();
  {
    const NoMoreFiles none;
    ASSERT_LT(dup(STDIN_FILENO), 0);
    std::size_t handled = 0;
    while (handled < 100 && loop.poll_one() > 0) ++handled;
    EXPECT_GT(handled, 0U);
    EXPECT_LT(handled, 100U);
  }
  EXPECT_THAT(scraper.Get(socket), testing::HasSubstr("up 1"));
}

}  // namespace
}  // namespace perseus::agent
