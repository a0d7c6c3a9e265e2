#include "perseus/cluster/http/server.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <exception>
#include <list>
#include <system_error>
#include <utility>

#include "perseus/base/host_port.h"
#include "perseus/cluster/http/event_stream.h"
#include "perseus/cluster/http/server_state.h"

namespace perseus::http {
namespace {

using asio::ip::tcp;
using boost::system::error_code;

// The most simultaneous 503 answers to refused connections. Further connections are closed without
// an answer.
constexpr std::size_t kMostRefusals = 64;
constexpr int kServerMostAtOnce = 64;  // The most connections that are accepted in a row.

// Returns the text of an address. An IPv4 address that is mapped to IPv6 is shown as IPv4.
std::string AddressText(asio::ip::address address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  }
  return address.to_string();
}

Result<FileDescriptor> ListenTcp(const tcp::endpoint& endpoint, const std::string& text) {
  FileDescriptor socket(
      ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!socket || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(socket.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return FailAs(ErrorKind::kSystem, "cannot listen on {}: {} (choose another address)", text,
                  std::generic_category().message(errno));
  }
  return socket;
}

}  // namespace

class Server::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& loop, ServerOptions options, Router router, TlsContext context)
      : state(std::make_shared<ServerState>(loop, std::move(options), std::move(router))),
        tls(std::move(context)) {}

  Result<void> Open(const tcp::endpoint& endpoint) {
    PERSEUS_ASSIGN_OR_RETURN(auto socket, ListenTcp(endpoint, state->options.address));
    tcp::endpoint bound;
    auto size = static_cast<socklen_t>(bound.capacity());
    ::getsockname(socket.get(), bound.data(), &size);
    port_ = bound.port();
    listeners_.emplace_back(state->loop, std::move(socket), false);
    if (!state->options.unix_socket) return {};
    PERSEUS_ASSIGN_OR_RETURN(auto other, ListenUnix(*state->options.unix_socket));
    listeners_.emplace_back(state->loop, std::move(other), true);
    return {};
  }

  static void AcceptAll(const std::shared_ptr<Impl>& self) {
    for (Listener& listener : self->listeners_) {
      asio::co_spawn(self->state->loop, Accept(self, listener), asio::detached);
    }
  }

  int port() const { return port_; }

  void Stop(std::chrono::milliseconds grace) {
    error_code ignored;
    for (Listener& listener : listeners_) {
      listener.socket.close(ignored);
      listener.pause.cancel();
    }
    state->is_stopping = true;
    for (EventStream* stream : state->streams) stream->Close();
    for (Connection* connection : state->open) {
      if (grace.count() == 0 || connection->is_idle) connection->Close();
    }
    state->grace.cancel();
    if (state->open.empty()) return;
    state->grace.expires_after(grace);
    state->grace.async_wait([open = state](const error_code& error) {
      if (error) return;
      for (Connection* connection : open->open) connection->Close();
    });
  }

  std::shared_ptr<ServerState> state;
  TlsContext tls;

 private:
  enum class Accepted { kOne, kNone, kNoResources };
  struct Listener {
    Listener(asio::io_context& loop, FileDescriptor descriptor, bool is_unix_socket)
        : socket(loop, descriptor.Release()), pause(loop), is_unix(is_unix_socket) {}
    asio::posix::stream_descriptor socket;
    asio::steady_timer pause;
    bool is_unix;
  };

  static asio::awaitable<void> Accept(std::shared_ptr<Impl> self, Listener& listener) {
    while (listener.socket.is_open()) {
      Accepted accepted = Accepted::kOne;
      for (int i = 0; i < kServerMostAtOnce && accepted == Accepted::kOne; ++i) {
        accepted = self->AcceptOne(listener);
      }
      error_code error;
      if (accepted == Accepted::kNoResources) {
        // The connection stays in the queue of the kernel until descriptors or memory are free.
        listener.pause.expires_after(std::chrono::milliseconds(100));
        co_await listener.pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
      } else {
        co_await listener.socket.async_wait(asio::posix::stream_descriptor::wait_read,
                                            asio::redirect_error(asio::use_awaitable, error));
      }
    }
  }

  Accepted AcceptOne(Listener& listener) {
    tcp::endpoint peer;
    auto size = static_cast<socklen_t>(peer.capacity());
    FileDescriptor socket(::accept4(listener.socket.native_handle(), peer.data(), &size,
                                    SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      try {
        if (listener.is_unix) {
          Take(std::move(socket), {.address = "unix", .is_over_unix_socket = true}, nullptr);
        } else {
          peer.resize(size);
          Take(std::move(socket), {.address = AddressText(peer.address())}, tls);
        }
      } catch (const std::exception&) {
        // Out of memory. Close this connection and continue with the next one.
      }
      return Accepted::kOne;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Accepted::kNone;
    const bool is_out_of_resources =
        errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    return is_out_of_resources ? Accepted::kNoResources : Accepted::kOne;
  }

  // `context`: null for plain HTTP.
  void Take(FileDescriptor socket, Connection::Peer peer, const TlsContext& context) {
    peer.ticket = state->connections.Enter(peer.address);
    const bool is_refused = peer.ticket == nullptr;
    if (is_refused) ++state->refused;
    const std::size_t refusals =
        state->open.size() - static_cast<std::size_t>(state->connections.count());
    // A refusal is plain text, which a client with TLS could not read.
    if (is_refused && (context || refusals >= kMostRefusals)) return;
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    auto connection =
        std::make_shared<Connection>(state, std::move(socket), context, std::move(peer));
    asio::co_spawn(state->loop, is_refused ? Refuse(connection) : Serve(connection),
                   asio::detached);
  }

  int port_ = 0;
  std::list<Listener> listeners_;  // Each listener has a coroutine that refers to it.
};

Result<Server> Server::Listen(asio::io_context& loop, ServerOptions options, Router router) {
  PERSEUS_ASSIGN_OR_RETURN(const auto at, ParseHostPort(options.address));
  error_code error;
  const auto address =
      asio::ip::make_address(at.host == "localhost" ? "127.0.0.1" : at.host, error);
  if (error) {
    return Fail("{} is not an address to listen on (expected an address such as 127.0.0.1:7410)",
                options.address);
  }
  TlsContext tls;
  if (options.tls) {
    PERSEUS_ASSIGN_OR_RETURN(tls, ServerTls(*options.tls));
  }
  auto impl = std::make_shared<Impl>(loop, std::move(options), std::move(router), std::move(tls));
  PERSEUS_RETURN_IF_ERROR(impl->Open({address, at.port}));
  Impl::AcceptAll(impl);
  return Server(std::move(impl));
}

Server::Server(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}

Server::~Server() {
  if (!impl_) return;
  Stop(std::chrono::milliseconds(0));
  impl_->state->options.answered = nullptr;
  impl_->state->options.failed = nullptr;
}

int Server::port() const { return impl_->port(); }

Server::Counts Server::counts() const {
  const ServerState& state = *impl_->state;
  return {state.connections.count(), static_cast<int>(state.streams.size()), state.refused,
          state.dropped_streams};
}

Result<void> Server::ReloadTls() {
  const auto& files = impl_->state->options.tls;
  if (!files) return Fail("this server has no TLS (start it with a certificate and a key)");
  PERSEUS_ASSIGN_OR_RETURN(impl_->tls, ServerTls(*files));
  return {};
}

void Server::Stop(std::chrono::milliseconds grace) { impl_->Stop(grace); }

}  // namespace perseus::http
