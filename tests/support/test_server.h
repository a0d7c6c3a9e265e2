// A server on its own thread, and a client that sends arbitrary bytes, for tests.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "perseus/base/file_descriptor.h"
#include "perseus/cluster/http/server.h"

namespace perseus::http {

// Limits without heartbeats. A test may compare the bytes of a stream, and if the test is slow, a
// heartbeat would be between them.
inline Limits WithoutHeartbeats() { return {.stream_beat = std::chrono::hours(1)}; }

class TestServer {
 public:
  explicit TestServer(Router router, ServerOptions options = {}) {
    options.address = "127.0.0.1:0";
    auto server = Server::Listen(loop_, std::move(options), std::move(router));
    if (!server) throw std::runtime_error(server.error().Message());
    server_ = std::make_unique<Server>(*std::move(server));
    port_ = server_->port();
    thread_ = std::thread([this] { loop_.run(); });
  }
  // Returns only if the stopped server leaves no work on the loop.
  ~TestServer() {
    asio::post(loop_, [this] {
      server_.reset();
      more_.reset();
    });
    thread_.join();
  }

  // Runs `work` on the thread of the loop, and returns its result.
  template <typename Work>
  auto OnLoop(Work work) {
    std::packaged_task<decltype(work())()> task(std::move(work));
    auto answer = task.get_future();
    asio::post(loop_, [&task] { task(); });
    return answer.get();
  }
  Server::Counts Counts() {
    return OnLoop([this] { return server_->counts(); });
  }
  // Waits until the condition is true for Counts(), because connections end at any time. Returns
  // false if the condition does not become true within a minute.
  template <typename Condition>
  bool Until(Condition condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (std::chrono::steady_clock::now() < until) {
      if (condition(Counts())) return true;
      std::this_thread::yield();
    }
    return false;
  }

  Server& server() { return *server_; }
  int port() const { return port_; }
  std::string Url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  asio::io_context loop_;
  asio::executor_work_guard<asio::io_context::executor_type> more_ = asio::make_work_guard(loop_);
  std::unique_ptr<Server> server_;
  int port_ = 0;
  std::thread thread_;
};

// Sends any bytes.
class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      throw std::runtime_error("cannot connect");
    }
  }
  explicit RawClient(const std::string& unix_socket)
      : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    unix_socket.copy(address.sun_path, sizeof address.sun_path - 1);
    if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      throw std::runtime_error("cannot connect");
    }
  }

  void Send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // The server may close the connection.
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  void EndSending() { ::shutdown(socket_.get(), SHUT_WR); }

  // Reads up to and including `mark`, or until the server closes the connection.
  std::string ReadUntil(std::string_view mark) {
    std::size_t found = std::string::npos;
    while ((found = input_.find(mark)) == std::string::npos) {
      if (!ReadSome()) return std::exchange(input_, "");
    }
    std::string text = input_.substr(0, found + mark.size());
    input_.erase(0, text.size());
    return text;
  }
  std::string ReadAll() {
    while (ReadSome()) {
    }
    return std::exchange(input_, "");
  }
  // Reads one response with a length.
  std::string ReadResponse() {
    std::string text = ReadUntil("\r\n\r\n");
    const std::size_t length = text.find("Content-Length: ");
    if (length == std::string::npos) return text;
    const std::size_t size = std::stoul(text.substr(length + 16));
    while (input_.size() < size && ReadSome()) {
    }
    text += input_.substr(0, size);
    input_.erase(0, size);
    return text;
  }
  std::string Ask(std::string_view text) {
    Send(text);
    return ReadResponse();
  }
  bool IsClosedByServer() { return input_.empty() && !ReadSome(); }
  int fd() const { return socket_.get(); }

 private:
  bool ReadSome() {
    pollfd polled{socket_.get(), POLLIN, 0};
    if (::poll(&polled, 1, 60'000) <= 0)
      throw std::runtime_error("the server sent nothing for 60 s");
    char bytes[16384];
    const ssize_t received = ::recv(socket_.get(), bytes, sizeof(bytes), 0);
    if (received > 0) input_.append(bytes, static_cast<std::size_t>(received));
    return received > 0;
  }

  FileDescriptor socket_;
  std::string input_;
};

// Connects a new client that sends this text. Returns the answer: one response, or everything until
// the server closes the connection.
inline std::string ResponseTo(const TestServer& server, std::string_view text) {
  return RawClient(server.port()).Ask(text);
}
inline std::string AllFor(const TestServer& server, std::string_view text) {
  RawClient client(server.port());
  client.Send(text);
  return client.ReadAll();
}

}  // namespace perseus::http
