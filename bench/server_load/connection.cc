#include "bench/server_load/connection.h"

#include <fmt/core.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <charconv>
#include <chrono>
#include <exception>
#include <stdexcept>

namespace perseus::load {
namespace {

constexpr std::size_t kScratch = 256U << 10U;
constexpr std::string_view kEndOfEvent = "\n\n";

std::size_t ContentLength(std::string_view head) {
  constexpr std::string_view kName = "\r\nContent-Length: ";
  const std::size_t at = head.find(kName);
  if (at == std::string_view::npos) throw std::runtime_error("an answer without a length");
  std::size_t length = 0;
  const std::string_view text = head.substr(at + kName.size());
  std::from_chars(text.data(), text.data() + text.size(), length);
  return length;
}

int Status(std::string_view head) {
  int status = 0;
  if (head.size() > 12) std::from_chars(head.data() + 9, head.data() + 12, status);
  return status;
}

// Passes on the complete events in `text`, and keeps the incomplete rest. Searches only the new
// text, from `searched` on.
void TakeEvents(std::string& text, std::size_t searched,
                const std::function<void(std::string)>& received) {
  std::size_t from = searched > 0 ? searched - 1 : 0;
  for (;;) {
    const std::size_t end = text.find(kEndOfEvent, from);
    if (end == std::string::npos) return;
    std::string rest = text.substr(end + kEndOfEvent.size());
    text.resize(end);
    if (!text.starts_with(':')) received(std::move(text));
    text = std::move(rest);
    from = 0;
  }
}

}  // namespace

asio::awaitable<void> Connection::Send(std::string_view method, std::string_view target,
                                       std::string_view body) {
  if (!socket_.is_open()) {
    co_await socket_.async_connect(server_, asio::use_awaitable);
    socket_.set_option(asio::ip::tcp::no_delay(true));
  }
  const std::string head =
      fmt::format("{} {} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n", method, target,
                  body.size());
  const std::array<asio::const_buffer, 2> parts{asio::buffer(head),
                                                asio::buffer(body.data(), body.size())};
  co_await asio::async_write(socket_, parts, asio::use_awaitable);
}

asio::awaitable<std::size_t> Connection::ReadHead() {
  co_return co_await asio::async_read_until(socket_, asio::dynamic_buffer(unread_), "\r\n\r\n",
                                            asio::use_awaitable);
}

asio::awaitable<Reply> Connection::Ask(std::string_view method, std::string_view target,
                                       std::string_view body) {
  co_await Send(method, target, body);
  const std::size_t head = co_await ReadHead();
  const std::string_view read(unread_.data(), head);
  const int status = Status(read);
  const std::size_t length = ContentLength(read);
  if (unread_.size() < head + length) {
    co_await asio::async_read(socket_, asio::dynamic_buffer(unread_),
                              asio::transfer_exactly(head + length - unread_.size()),
                              asio::use_awaitable);
  }
  Reply reply{.status = status, .body = unread_.substr(head, length)};
  unread_.erase(0, head + length);
  co_return reply;
}

asio::awaitable<std::string> Connection::Must(std::string_view method, std::string_view target,
                                              std::string_view body) {
  Reply reply = co_await Ask(method, target, body);
  if (reply.status / 100 != 2) {
    throw std::runtime_error(fmt::format("{} {}: {} {}", method, target, reply.status, reply.body));
  }
  co_return std::move(reply.body);
}

asio::awaitable<void> Connection::Listen(std::string_view target,
                                         std::function<void(std::string)> received) {
  co_await Send("GET", target, "");
  const std::size_t head = co_await ReadHead();
  if (Status(unread_) != 200) throw std::runtime_error("no stream: " + unread_.substr(0, head));
  std::string text = unread_.substr(head);
  unread_.clear();
  socket_.non_blocking(true);
  TakeEvents(text, 0, received);
  // All connections share this buffer, because no coroutine waits between filling and emptying it.
  static std::array<char, kScratch> scratch;
  boost::system::error_code error;
  while (socket_.is_open()) {
    const std::size_t got = socket_.read_some(asio::buffer(scratch), error);
    if (error == asio::error::would_block) {
      co_await socket_.async_wait(asio::ip::tcp::socket::wait_read,
                                  asio::redirect_error(asio::use_awaitable, error));
      if (error) co_return;
      continue;
    }
    if (error) co_return;
    const std::size_t searched = text.size();
    text.append(scratch.data(), got);
    TakeEvents(text, searched, received);
  }
}

void Connection::Close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
  unread_.clear();
}

void Spawn(asio::io_context& loop, asio::awaitable<void> work) {
  asio::co_spawn(loop, std::move(work), [](const std::exception_ptr& thrown) {
    if (thrown) std::rethrow_exception(thrown);
  });
}

asio::awaitable<void> ForEach(asio::io_context& loop, int count, int width,
                              std::function<asio::awaitable<void>(Connection&, int)> work,
                              asio::ip::tcp::endpoint server) {
  int next = 0;
  int left = std::min(count, width);
  asio::steady_timer done(loop, asio::steady_timer::time_point::max());
  const auto one = [&]() -> asio::awaitable<void> {
    Connection connection(loop, server);
    while (next < count) co_await work(connection, next++);
    if (--left == 0) done.cancel();
  };
  for (int i = std::min(count, width); i > 0; --i) Spawn(loop, one());
  boost::system::error_code ignored;
  if (left > 0) co_await done.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

asio::awaitable<void> Sleep(double seconds) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  timer.expires_after(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds)));
  co_await timer.async_wait(asio::use_awaitable);
}

}  // namespace perseus::load
