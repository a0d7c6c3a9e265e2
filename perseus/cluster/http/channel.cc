#include "perseus/cluster/http/channel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace perseus::http {
namespace {

using boost::system::error_code;

constexpr std::chrono::milliseconds kLinger{1000};

// Removes the first `written` bytes of the texts.
void Advance(std::vector<std::string_view>& texts, std::size_t written) {
  std::size_t done = 0;
  while (done < texts.size() && texts[done].size() <= written) written -= texts[done++].size();
  texts.erase(texts.begin(), texts.begin() + static_cast<std::ptrdiff_t>(done));
  if (!texts.empty()) texts.front().remove_prefix(written);
}

}  // namespace

// `socket` releases the descriptor last, so it still owns the descriptor if another constructor
// throws.
Channel::Channel(asio::io_context& loop, FileDescriptor socket, const TlsContext& tls)
    : descriptor_(loop, socket.get()),
      deadline_(loop),
      link_(Link::OfServer(socket.Release(), tls)) {}

void Channel::ExpireAfter(std::chrono::milliseconds time) {
  late_ = false;
  deadline_.expires_after(time);
  deadline_.async_wait([weak = weak_from_this()](const error_code& error) {
    const auto self = weak.lock();
    // The deadline may have been set again at the moment when the timer expired.
    if (error || !self || self->deadline_.expiry() > asio::steady_timer::clock_type::now()) return;
    self->late_ = true;
    error_code ignored;
    self->descriptor_.cancel(ignored);
  });
}

// By default, the system waits about 15 minutes. This default stays if the call fails.
void Channel::FailWithoutAcknowledgement(std::chrono::milliseconds time) {
  const auto timeout = static_cast<unsigned>(time.count());
  ::setsockopt(descriptor_.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout,
               sizeof(timeout));
}

bool Channel::IsPeerThere() {
  if (!IsOpen()) return false;
  pollfd socket{.fd = descriptor_.native_handle(), .events = POLLRDHUP, .revents = 0};
  return ::poll(&socket, 1, 0) == 0;
}

void Channel::NeverExpire() {
  late_ = false;
  deadline_.expires_at(asio::steady_timer::time_point::max());
}

asio::posix::stream_descriptor::wait_type Channel::WaitType(Link::Status want) {
  return want == Link::Status::kWantWrite ? asio::posix::stream_descriptor::wait_write
                                          : asio::posix::stream_descriptor::wait_read;
}

asio::awaitable<bool> Channel::CanContinue(Link::Moved moved) {
  const bool wants =
      moved.status == Link::Status::kWantRead || moved.status == Link::Status::kWantWrite;
  if (!wants || late_ || !IsOpen()) co_return false;
  error_code error;
  co_await descriptor_.async_wait(WaitType(moved.status),
                                  asio::redirect_error(asio::use_awaitable, error));
  co_return !error && !late_ && IsOpen();
}

asio::awaitable<bool> Channel::Handshake() {
  while (IsOpen()) {
    const Link::Moved moved = link_.Handshake();
    if (moved.status == Link::Status::kMoved) co_return true;
    if (!co_await CanContinue(moved)) co_return false;
  }
  co_return false;
}

asio::awaitable<bool> Channel::ReadMore(std::string& text, std::span<char> scratch) {
  while (IsOpen() && !late_) {
    const Link::Moved moved = link_.Read(scratch);
    if (moved.status == Link::Status::kMoved) {
      text.append(scratch.data(), moved.bytes);
      co_return true;
    }
    if (!co_await CanContinue(moved)) co_return false;
  }
  co_return false;
}

asio::awaitable<bool> Channel::Write(std::vector<std::string_view> texts) {
  Advance(texts, 0);
  while (!texts.empty()) {
    if (!IsOpen()) co_return false;
    const Link::Moved moved = link_.Write(texts);
    if (moved.status == Link::Status::kMoved) {
      Advance(texts, moved.bytes);
    } else if (!co_await CanContinue(moved)) {
      co_return false;
    }
  }
  co_return true;
}

asio::awaitable<void> Channel::CloseGracefully(std::span<char> scratch) {
  if (!IsOpen()) co_return;
  link_.EndWriting();
  ExpireAfter(kLinger);
  std::string ignored;
  while (co_await ReadMore(ignored, scratch)) {
    ignored.clear();
    // Let other connections run, however fast this client sends.
    co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
  }
  Close();
}

void Channel::Close() {
  link_.Detach();
  error_code ignored;
  descriptor_.close(ignored);
  deadline_.cancel();
}

}  // namespace perseus::http
