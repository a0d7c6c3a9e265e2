#include "perseus/cluster/http/server_state.h"

#include <utility>

#include "perseus/base/host_port.h"
#include "perseus/cluster/http/local_user.h"

namespace perseus::http {
namespace {

constexpr std::size_t kServerStateMostAtOnce = 64 << 10;

}  // namespace

ServerState::ServerState(asio::io_context& io, ServerOptions server_options, Router routes)
    : loop(io),
      options(std::move(server_options)),
      router(std::move(routes)),
      connections({options.limits.connections, options.limits.connections}),
      rates(options.limits.requests_per_second),
      scratch(kServerStateMostAtOnce),
      grace(io) {}

Connection::Connection(std::shared_ptr<ServerState> state, FileDescriptor socket,
                       const TlsContext& tls, Peer peer)
    : Channel(state->loop, std::move(socket), tls),
      state_(std::move(state)),
      peer_(std::move(peer)) {
  state_->open.insert(this);
}

std::optional<uid_t> Connection::LocalUser() {
  if (!local_user_) {
    const bool is_here = !peer_.is_over_unix_socket && IsLoopback(peer_.address);
    local_user_ = is_here ? UserOfOtherSide(socket()) : std::nullopt;
  }
  return *local_user_;
}

Connection::~Connection() {
  state_->open.erase(this);
  if (state_->is_stopping && state_->open.empty()) state_->grace.cancel();
}

}  // namespace perseus::http
