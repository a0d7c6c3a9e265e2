// A connection of the server's, as a coroutine sees it: reads and writes are awaited, and all of
// them end when a deadline is over. Single-threaded.
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
  // `socket` does not block.
  Channel(asio::io_context& loop, FileDescriptor socket, const TlsContext& tls);

  // Whatever is awaited afterwards fails when this is over, and WasLate() then.
  void ExpireAfter(std::chrono::milliseconds time);
  void NeverExpire();
  // From now on it fails, too, when the other side has not acknowledged for that long what was
  // sent: it may be gone without a word.
  void LoseWithoutAcknowledgement(std::chrono::milliseconds time);
  // False once the other side has closed its end.
  bool IsPeerThere();
  bool WasLate() const { return late_; }

  asio::awaitable<bool> Handshake();
  // Adds what came, at most `scratch`'s size. False: no more comes.
  asio::awaitable<bool> ReadMore(std::string& text, std::span<char> scratch);
  asio::awaitable<bool> Write(std::vector<std::string_view> texts);
  // Closes so that what was written arrives: says that nothing follows, and waits a little for the
  // other side to say so, too. Closing with bytes unread would take back what was written.
  asio::awaitable<void> EndGently(std::span<char> scratch);

  // For who does not await.
  template <typename Ready>
  void WhenReady(Link::Status want, Ready ready) {
    descriptor_.async_wait(WaitType(want), std::move(ready));
  }

  void Close();
  bool IsOpen() const { return descriptor_.is_open(); }
  Link& link() { return link_; }

 private:
  static asio::posix::stream_descriptor::wait_type WaitType(Link::Status want);
  // Waits for what `moved` wants. False: it wants nothing that could still come.
  asio::awaitable<bool> CanGoOn(Link::Moved moved);

  asio::posix::stream_descriptor descriptor_;
  asio::steady_timer deadline_;
  Link link_;
  bool late_ = false;
};

}  // namespace perseus::http
