// Takes requests off a connection, within its limits.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "perseus/cluster/http/parser.h"
#include "perseus/cluster/http/server_state.h"

namespace perseus::http {

// The part of Limits::all_bodies_bytes that one request has.
class BodyShare {
 public:
  explicit BodyShare(ServerState& state) : state_(state) {}
  BodyShare(const BodyShare&) = delete;
  ~BodyShare() { state_.body_bytes -= bytes_; }

  // False: all together are too much.
  bool Hold(std::size_t bytes);

 private:
  ServerState& state_;
  std::size_t bytes_ = 0;
};

struct IncomingRequest {
  explicit IncomingRequest(ServerState& state) : share(state) {}

  Request request;        // As far as it came.
  Router::Match match;    // Where it goes.
  bool has_head = false;  // Those two are as the header says.
  std::optional<Response> refusal;
  bool keeps_alive = false;  // Another request may follow.
  std::chrono::steady_clock::time_point begin;
  BodyShare share;
};

class RequestReader {
 public:
  // `connection` outlives it, and has shaken hands.
  explicit RequestReader(Connection& connection);

  // The next request, or what came instead, to be refused. Null: the client is gone, or has been
  // silent for too long.
  asio::awaitable<std::unique_ptr<IncomingRequest>> Next();

 private:
  asio::awaitable<bool> AwaitFirstByte();
  // False: the client is gone.
  asio::awaitable<bool> Read(IncomingRequest& incoming, RequestParser& parser);
  std::optional<Response> RateRefusal();
  // Whether to go on with it.
  void CheckHead(IncomingRequest& incoming, RequestParser& parser);
  void TakeHead(IncomingRequest& incoming, RequestParser& parser);

  Connection& connection_;
  ServerState& state_;
  std::string certificate_;
  std::string input_;  // What came and belongs to no request yet.
};

}  // namespace perseus::http
