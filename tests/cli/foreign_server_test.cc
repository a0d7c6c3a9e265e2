// Tests the verbs for a server with an answer that does not come from a perseus server. It may come
// from a proxy, from another service, or from another version. The verbs must say so.
#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <thread>

#include "perseus/base/file_descriptor.h"
#include "tests/cli/program.h"

namespace perseus {
namespace {

// Answers every request with the same text, on a new connection for each request.
class ForeignServer {
 public:
  explicit ForeignServer(std::string answer)
      : answer_(std::move(answer)), socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket_.get(), 8), 0);
    ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    url_ = fmt::format("http://127.0.0.1:{}", ntohs(address.sin_port));
    thread_ = std::thread([this] { Run(); });
  }
  ForeignServer(const ForeignServer&) = delete;
  ForeignServer& operator=(const ForeignServer&) = delete;
  ~ForeignServer() {
    ::shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }

  const std::string& url() const { return url_; }

 private:
  void Run() {
    while (true) {
      const FileDescriptor client(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client) return;
      char request[1 << 16];
      if (::recv(client.get(), request, sizeof request, 0) <= 0) continue;
      (void)::send(client.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL);
    }
  }

  const std::string answer_;
  const FileDescriptor socket_;
  std::string url_;
  std::thread thread_;
};

std::string JsonAnswer(std::string_view body) {
  return fmt::format(
      "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n{}",
      body.size(), body);
}

constexpr const char* kVerbs[] = {
    "jobs",
    "nodes",
    "job show x",
    "job target x --min-energy",
    "job cap x --power 1kW",
    "job plan x",
    "job register x --schedule 1f1b --pp-ranks 4 --microbatches 8 --blocking-power 80",
    "token list",
    "token create --scope operator",
    "audit",
};

class ForeignServerTest : public CommandTest {
 protected:
  void ExpectRefused(const std::string& answer, const std::string& complaint) const {
    for (const char* verb : kVerbs) {
      const ForeignServer server(answer);
      SCOPED_TRACE(verb);
      ExpectComplaint(Run(fmt::format("{} --server {}", verb, server.url())), 1, complaint);
    }
  }
};

TEST_F(ForeignServerTest, AnotherAnswerIsAnErrorOfEveryVerb) {
  for (const char* body : {"{}", "[]", "null", "7"}) {
    SCOPED_TRACE(body);
    ExpectRefused(JsonAnswer(body), "(is it a perseus server, and of this version?)");
  }
}

TEST_F(ForeignServerTest, APageIsAnErrorOfEveryVerb) {
  ExpectRefused(JsonAnswer("<html></html>"), "(is it a perseus server");
}

TEST_F(ForeignServerTest, AStatusWithoutAReasonHasARemedy) {
  ExpectRefused("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                "the server answered with status 502 (try again; if it fails again");
}

TEST_F(ForeignServerTest, AListOfJobsThatDoesNotEndIsAnError) {
  const ForeignServer server(JsonAnswer(R"({"jobs": [], "next": "a"})"));
  ExpectComplaint(Run(fmt::format("jobs --server {}", server.url())), 1, "does not end");
}

}  // namespace
}  // namespace perseus
