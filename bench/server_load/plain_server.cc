#include "bench/server_load/plain_server.h"

#include <fmt/core.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cstdlib>
#include <utility>

namespace perseus::load {

namespace asio = boost::asio;
using asio::ip::tcp;

PlainServer::PlainServer(std::string answer)
    : answer_(
          fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", answer.size(), answer)),
      acceptor_(loop_, tcp::endpoint(asio::ip::address_v4::loopback(), 0)) {
  asio::co_spawn(loop_, Accept(), asio::detached);
  thread_ = std::thread([this] { loop_.run(); });
}

PlainServer::~PlainServer() {
  loop_.stop();
  thread_.join();
}

asio::awaitable<void> PlainServer::Accept() {
  for (;;) {
    auto socket =
        std::make_shared<tcp::socket>(co_await acceptor_.async_accept(asio::use_awaitable));
    socket->set_option(tcp::no_delay(true));
    asio::co_spawn(loop_, Serve(std::move(socket)), asio::detached);
  }
}

asio::awaitable<void> PlainServer::Serve(std::shared_ptr<tcp::socket> socket) {
  std::string text;
  for (;;) {
    const std::size_t head = co_await asio::async_read_until(*socket, asio::dynamic_buffer(text),
                                                             "\r\n\r\n", asio::use_awaitable);
    if (text.starts_with("GET ")) {
      const std::string_view begun = "HTTP/1.1 200 OK\r\n\r\n";
      co_await asio::async_write(*socket, asio::buffer(begun), asio::use_awaitable);
      streams_.push_back(std::move(socket));
      co_return;
    }
    const std::size_t at = text.find("Content-Length: ");
    const auto length = static_cast<std::size_t>(std::atoi(text.c_str() + at + 16));
    if (text.size() < head + length) {
      co_await asio::async_read(*socket, asio::dynamic_buffer(text),
                                asio::transfer_exactly(head + length - text.size()),
                                asio::use_awaitable);
    }
    text.erase(0, head + length);
    co_await asio::async_write(*socket, asio::buffer(answer_), asio::use_awaitable);
  }
}

void PlainServer::Broadcast(std::string event) {
  asio::post(loop_, [this, event = std::make_shared<const std::string>(std::move(event))] {
    for (const auto& socket : streams_) {
      asio::async_write(*socket, asio::buffer(*event),
                        [event, socket](boost::system::error_code, std::size_t) {});
    }
  });
}

}  // namespace perseus::load
