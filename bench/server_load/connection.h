// A client's connection as thousands of them fit into one thread: plain HTTP/1.1 over asio
// coroutines, good for what `perseus serve` answers and for nothing else.
//
// What goes wrong is thrown (std::runtime_error, boost::system::system_error): it ends the run.
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

  // Connects first if it has not. One at a time.
  asio::awaitable<Reply> Ask(std::string_view method, std::string_view target,
                             std::string_view body = "");
  // The same, but anything but 2xx is thrown, with what the server says. The body.
  asio::awaitable<std::string> Must(std::string_view method, std::string_view target,
                                    std::string_view body = "");
  // Calls `heard` with each event's text as it stands in the stream, until the server or Close()
  // ends it.
  asio::awaitable<void> Listen(std::string_view target, std::function<void(std::string)> heard);
  void Close();

 private:
  asio::awaitable<void> Send(std::string_view method, std::string_view target,
                             std::string_view body);
  asio::awaitable<std::size_t> ReadHead();

  asio::ip::tcp::socket socket_;
  asio::ip::tcp::endpoint server_;
  std::string unread_;
};

// Runs it on the loop; what it throws comes out of the loop's run().
void Spawn(asio::io_context& loop, asio::awaitable<void> work);

// Runs work(loop), a coroutine, on a loop of its own, to its end.
template <typename Work>
void RunOnLoop(Work work) {
  asio::io_context loop(1);
  Spawn(loop, work(loop));
  loop.run();
}

// Calls `work` with 0, 1, … count - 1, at most `width` at a time; done when all are.
asio::awaitable<void> ForEach(asio::io_context& loop, int count, int width,
                              std::function<asio::awaitable<void>(Connection&, int)> work,
                              asio::ip::tcp::endpoint server);

asio::awaitable<void> Sleep(double seconds);

}  // namespace perseus::load
