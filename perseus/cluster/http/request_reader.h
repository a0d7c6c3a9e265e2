// Reads requests from a connection, within the limits of the server.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "perseus/cluster/http/parser.h"
#include "perseus/cluster/http/server_state.h"

namespace perseus::http {

// Counts the bytes of one request's body. Limits::all_bodies_bytes bounds the sum over all running
// requests.
class BodyShare {
 public:
  explicit BodyShare(ServerState& state) : state_(state) {}
  BodyShare(const BodyShare&) = delete;
  ~BodyShare() { state_.body_bytes -= bytes_; }

  // Returns false if all requests together would have too many bytes.
  bool Hold(std::size_t bytes);

 private:
  ServerState& state_;
  std::size_t bytes_ = 0;
};

struct IncomingRequest {
  explicit IncomingRequest(ServerState& state) : share(state) {}

  Request request;        // The parts that have arrived.
  Router::Match match;    // The route of the request.
  bool has_head = false;  // Whether `request` and `match` have the data of the header.
  std::optional<Response> refusal;
  bool keeps_alive = false;  // Whether another request may follow.
  std::chrono::steady_clock::time_point begin;
  BodyShare share;
};

// Returns the trace id in a `traceparent` (W3C Trace Context). Returns nullopt if the text does not
// have exactly this form.
std::optional<std::string> ParseTraceParent(std::string_view text);

class RequestReader {
 public:
  // `connection` outlives the reader and has finished its handshake.
  explicit RequestReader(Connection& connection);

  // Reads the next request. If the request cannot be accepted, its `refusal` is set. Returns null
  // if the client has closed the connection or was silent for too long.
  asio::awaitable<std::unique_ptr<IncomingRequest>> Next();

 private:
  asio::awaitable<bool> AwaitFirstByte();
  // Returns false if the client has closed the connection.
  asio::awaitable<bool> Read(IncomingRequest& incoming, RequestParser& parser);
  std::optional<Response> RateRefusal();
  // Sets a refusal if the request cannot be accepted.
  void CheckHead(IncomingRequest& incoming, RequestParser& parser);
  void TakeHead(IncomingRequest& incoming, RequestParser& parser);

  Connection& connection_;
  ServerState& state_;
  std::string certificate_;
  std::string input_;  // Received bytes after the last request.
};

}  // namespace perseus::http
