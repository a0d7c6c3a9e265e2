// A server's connection to one client, for coroutines. A coroutine awaits reads and writes. They
// fail at the deadline of the connection. Single-threaded.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/file_descriptor.h"
#include "perseus/cluster/http/link.h"

namespace perseus::http {

namespace asio = boost::asio;

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  // `socket` must be non-blocking.
  Channel(asio::io_context& loop, FileDescriptor socket, const TlsContext& tls);

  // Operations that are awaited after this call fail after `time`. Then WasLate() is true.
  void ExpireAfter(std::chrono::milliseconds time);
  void NeverExpire();
  // Makes operations also fail if the other side does not acknowledge sent data for `time`. The
  // other side may have disappeared without closing the connection.
  void FailWithoutAcknowledgement(std::chrono::milliseconds time);
  // Returns false if the other side has closed the connection.
  bool IsPeerThere();
  bool WasLate() const { return late_; }

  asio::awaitable<bool> Handshake();
  // Appends received bytes, at most the size of `scratch`. Returns false at the end of the stream.
  asio::awaitable<bool> ReadMore(std::string& text, std::span<char> scratch);
  asio::awaitable<bool> Write(std::vector<std::string_view> texts);
  // Ends writing, and briefly waits for the other side to do the same, so that all written bytes
  // arrive. (If a socket is closed with unread bytes, the kernel discards bytes that were written.)
  asio::awaitable<void> CloseGracefully(std::span<char> scratch);

  // Calls `ready` when the socket can be read or written, as `want` says. For code that is not a
  // coroutine.
  template <typename Ready>
  void WhenReady(Link::Status want, Ready ready) {
    descriptor_.async_wait(WaitType(want), std::move(ready));
  }

  void Close();
  bool IsOpen() const { return descriptor_.is_open(); }
  Link& link() { return link_; }

 protected:
  int socket() { return descriptor_.native_handle(); }

 private:
  static asio::posix::stream_descriptor::wait_type WaitType(Link::Status want);
  // Waits until the operation that returned `moved` can continue. False if it cannot continue.
  asio::awaitable<bool> CanContinue(Link::Moved moved);

  asio::posix::stream_descriptor descriptor_;
  asio::steady_timer deadline_;
  Link link_;
  bool late_ = false;
};

}  // namespace perseus::http
