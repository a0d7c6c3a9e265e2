#include "perseus/cluster/http/server.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <exception>
#include <utility>

#include "perseus/base/host_port.h"
#include "perseus/cluster/http/connection.h"
#include "perseus/cluster/http/event_stream.h"

namespace perseus::http {
namespace {

using asio::ip::tcp;
using boost::system::error_code;

// Simultaneous 503 answers to refused connections. Further ones are closed without an answer.
constexpr std::size_t kMostRefusals = 64;
constexpr int kServerMostAtOnce = 64;  // Connections that are accepted in a row.

// Returns the text of an address. An IPv4 address that is mapped to IPv6 becomes IPv4 again.
std::string AddressText(asio::ip::address address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  }
  return address.to_string();
}

}  // namespace

class Server::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& loop, ServerOptions options, Router router, TlsContext context)
      : state(std::make_shared<ServerState>(loop, std::move(options), std::move(router))),
        tls(std::move(context)),
        acceptor_(loop),
        pause_(loop) {}

  Result<void> Open(const tcp::endpoint& endpoint) {
    error_code error;
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
    if (!error) acceptor_.native_non_blocking(true, error);
    if (error) {
      return FailAs(ErrorKind::kSystem, "cannot listen on {}: {} (choose another address)",
                    state->options.address, error.message());
    }
    return {};
  }

  static asio::awaitable<void> Accept(std::shared_ptr<Impl> self) {
    while (self->acceptor_.is_open()) {
      Accepted accepted = Accepted::kOne;
      for (int i = 0; i < kServerMostAtOnce && accepted == Accepted::kOne; ++i) {
        accepted = self->AcceptOne();
      }
      error_code error;
      if (accepted == Accepted::kNoResources) {
        // The connection stays in the queue of the kernel until descriptors or memory are free.
        self->pause_.expires_after(std::chrono::milliseconds(100));
        co_await self->pause_.async_wait(asio::redirect_error(asio::use_awaitable, error));
      } else {
        co_await self->acceptor_.async_wait(tcp::acceptor::wait_read,
                                            asio::redirect_error(asio::use_awaitable, error));
      }
    }
  }

  int port() const { return acceptor_.local_endpoint().port(); }

  void Stop(std::chrono::milliseconds grace) {
    error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
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

  Accepted AcceptOne() {
    tcp::endpoint peer;
    auto size = static_cast<socklen_t>(peer.capacity());
    FileDescriptor socket(
        ::accept4(acceptor_.native_handle(), peer.data(), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      peer.resize(size);
      try {
        Take(std::move(socket), AddressText(peer.address()));
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

  void Take(FileDescriptor socket, std::string address) {
    auto ticket = state->connections.Enter(address);
    const bool is_refused = ticket == nullptr;
    if (is_refused) ++state->refused;
    const std::size_t refusals =
        state->open.size() - static_cast<std::size_t>(state->connections.count());
    // A client with TLS could not read the answer.
    if (is_refused && (tls || refusals >= kMostRefusals)) return;
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    auto connection = std::make_shared<Connection>(
        state, std::move(socket), tls, Connection::Peer{std::move(address), std::move(ticket)});
    asio::co_spawn(state->loop, is_refused ? Refuse(connection) : Serve(connection),
                   asio::detached);
  }

  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
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
    PERSEUS_ASSIGN_OR_RETURN(auto context, ServerTls(*options.tls));
    tls = std::move(context);
  }
  auto impl = std::make_shared<Impl>(loop, std::move(options), std::move(router), std::move(tls));
  if (const auto opened = impl->Open({address, at.port}); !opened) return Fail(opened);
  asio::co_spawn(loop, Impl::Accept(impl), asio::detached);
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
  PERSEUS_ASSIGN_OR_RETURN(auto context, ServerTls(*files));
  impl_->tls = std::move(context);
  return {};
}

void Server::Stop(std::chrono::milliseconds grace) { impl_->Stop(grace); }

}  // namespace perseus::http
