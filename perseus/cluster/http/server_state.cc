#include "perseus/cluster/http/server_state.h"

#include <utility>

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

Connection::~Connection() {
  state_->open.erase(this);
  if (state_->is_stopping && state_->open.empty()) state_->grace.cancel();
}

}  // namespace perseus::http
