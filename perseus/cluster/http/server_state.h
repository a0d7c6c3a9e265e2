// The state that the connections of one server share.
#pragma once

#include <sys/types.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "perseus/cluster/http/admission.h"
#include "perseus/cluster/http/channel.h"
#include "perseus/cluster/http/server.h"

namespace perseus::http {

class EventStream;
class Connection;

struct ServerState {
  ServerState(asio::io_context& io, ServerOptions server_options, Router routes);

  asio::io_context& loop;
  ServerOptions options;
  Router router;
  ConnectionCounter connections;
  RateLimiter rates;
  // The read buffer of all connections. Its content is valid only within a call.
  std::vector<char> scratch;
  std::size_t body_bytes = 0;  // The bodies of running requests.
  std::int64_t refused = 0;
  std::int64_t dropped_streams = 0;
  bool is_stopping = false;

  // The open connections and streams, which register themselves.
  std::unordered_set<Connection*> open;
  std::unordered_set<EventStream*> streams;
  asio::steady_timer grace;  // Ends when open connections have to be closed, after Server::Stop.
};

// A connection. Its users share the ownership.
class Connection : public Channel {
 public:
  struct Peer {
    std::string address;
    bool is_over_unix_socket = false;
    ConnectionCounter::Ticket ticket = {};  // Null if the connection has to be refused.
  };
  Connection(std::shared_ptr<ServerState> state, FileDescriptor socket, const TlsContext& tls,
             Peer peer);
  ~Connection();

  ServerState& state() { return *state_; }
  const std::shared_ptr<ServerState>& shared_state() const { return state_; }
  const Peer& peer() const { return peer_; }
  // The user of a client on this machine that is connected over TCP. The first call asks the
  // kernel.
  std::optional<uid_t> LocalUser();
  // True if the connection can be closed without losing a request.
  bool is_idle = true;

 private:
  std::shared_ptr<ServerState> state_;
  Peer peer_;
  std::optional<std::optional<uid_t>> local_user_;
};

// Serves one connection: reads requests and writes answers, one after another. Returns when the
// connection is closed or has become an event stream. Never throws.
asio::awaitable<void> Serve(std::shared_ptr<Connection> connection);
// Answers 503 and closes the connection.
asio::awaitable<void> Refuse(std::shared_ptr<Connection> connection);

}  // namespace perseus::http
