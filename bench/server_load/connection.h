// A client connection that speaks plain HTTP/1.1 with asio coroutines. It is so cheap that one
// thread can have thousands of connections. It understands only the responses of `perseus serve`.
//
// An error is an exception (std::runtime_error, boost::system::system_error), which ends the run.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <string>
#include <string_view>

namespace perseus::load {

namespace asio = boost::asio;

struct Reply {
  int status = 0;
  std::string body;
};

class Connection {
 public:
  Connection(asio::io_context& loop, asio::ip::tcp::endpoint server)
      : socket_(loop), server_(std::move(server)) {}

  // Sends a request and waits for the response. Connects first if necessary. Only one request may
  // run at a time.
  asio::awaitable<Reply> Ask(std::string_view method, std::string_view target,
                             std::string_view body = "");
  // The same, and returns the body. Throws the message of the server if the status is not 2xx.
  asio::awaitable<std::string> Must(std::string_view method, std::string_view target,
                                    std::string_view body = "");
  // Calls `received` with the text of each event, until the server or Close() ends the stream.
  asio::awaitable<void> Listen(std::string_view target, std::function<void(std::string)> received);
  void Close();

 private:
  asio::awaitable<void> Send(std::string_view method, std::string_view target,
                             std::string_view body);
  asio::awaitable<std::size_t> ReadHead();

  asio::ip::tcp::socket socket_;
  asio::ip::tcp::endpoint server_;
  std::string unread_;
};

// Runs a coroutine on the loop. The loop's run() throws the exceptions of the coroutine.
void Spawn(asio::io_context& loop, asio::awaitable<void> work);

// Runs the coroutine work(loop) on a new loop until the coroutine ends.
template <typename Work>
void RunOnLoop(Work work) {
  asio::io_context loop(1);
  Spawn(loop, work(loop));
  loop.run();
}

// Calls `work` with the numbers 0 to count - 1, at most `width` calls at a time. Ends when all
// calls have ended.
asio::awaitable<void> ForEach(asio::io_context& loop, int count, int width,
                              std::function<asio::awaitable<void>(Connection&, int)> work,
                              asio::ip::tcp::endpoint server);

asio::awaitable<void> Sleep(double seconds);

}  // namespace perseus::load
