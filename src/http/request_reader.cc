#include "perseus/http/request_reader.h"

#include <fmt/format.h>

#include <utility>

#include "perseus/http/target.h"

namespace perseus::http {
namespace {

using std::chrono::milliseconds;

Response TryLater(const Problem& problem, milliseconds wait) {
  Response response = ProblemResponse(problem);
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(wait).count();
  response.fields.emplace_back("Retry-After", std::to_string(seconds));
  return response;
}

Response TooManyBodies() {
  return TryLater({503, "Too much at once", "The requests in hand take all the memory they may", "",
                   "try again later"},
                  milliseconds(1000));
}

Response TooSlow(milliseconds most) {
  return ProblemResponse({408, "Too slow a request",
                          fmt::format("It was not all here after {} ms", most.count()), "",
                          "send requests at once, or have the server's limit raised"});
}

}  // namespace

bool BodyShare::Hold(std::size_t bytes) {
  state_.body_bytes = state_.body_bytes - bytes_ + bytes;
  bytes_ = bytes;
  return state_.body_bytes <= state_.options.limits.all_bodies_bytes;
}

RequestReader::RequestReader(Connection& connection)
    : connection_(connection),
      state_(connection.state()),
      certificate_(connection.link().PeerName()) {}

asio::awaitable<std::unique_ptr<IncomingRequest>> RequestReader::Next() {
  if (!co_await AwaitFirstByte()) co_return nullptr;
  const Limits& limits = state_.options.limits;
  auto incoming = std::make_unique<IncomingRequest>(state_);
  incoming->begin = std::chrono::steady_clock::now();
  connection_.ExpireAfter(limits.request_time);
  RequestParser parser({limits.header_bytes, limits.body_bytes});
  if (!co_await Read(*incoming, parser)) co_return nullptr;
  Take(*incoming, parser);
  co_return incoming;
}

asio::awaitable<bool> RequestReader::AwaitFirstByte() {
  if (!input_.empty()) co_return true;
  if (state_.is_stopping) co_return false;
  input_ = std::string();  // Thousands of connections are idle: they hold nothing.
  connection_.is_idle = true;
  connection_.ExpireAfter(state_.options.limits.idle_time);
  const bool came = co_await connection_.ReadMore(input_, state_.scratch);
  connection_.is_idle = false;
  co_return came;
}

asio::awaitable<bool> RequestReader::Read(IncomingRequest& incoming, RequestParser& parser) {
  bool was_looked_at = false;
  while (true) {
    const std::size_t used = parser.Put(input_);
    input_.erase(0, used);
    if (parser.failure()) {
      incoming.refusal = ProblemResponse(*parser.failure());
      co_return true;
    }
    if (parser.HasHeader() && !std::exchange(was_looked_at, true)) {
      incoming.refusal = RateRefusal();
      if (incoming.refusal) co_return true;
      if (!parser.IsDone() && parser.ExpectsContinue() && input_.empty()) {
        std::vector<std::string_view> go_on = {"HTTP/1.1 100 Continue\r\n\r\n"};
        if (!co_await connection_.Write(std::move(go_on))) co_return false;
      }
    }
    if (!incoming.share.Hold(parser.body().size())) {
      incoming.refusal = TooManyBodies();
      co_return true;
    }
    if (parser.IsDone()) co_return true;
    if (used > 0 && !input_.empty()) continue;
    if (!co_await connection_.ReadMore(input_, state_.scratch)) {
      if (!connection_.WasLate()) co_return false;
      incoming.refusal = TooSlow(state_.options.limits.request_time);
      co_return true;
    }
  }
}

std::optional<Response> RequestReader::RateRefusal() {
  const auto wait = state_.rates.Ask(connection_.peer().address, std::chrono::steady_clock::now());
  if (!wait) return std::nullopt;
  return TryLater({429, "Too many requests",
                   fmt::format("More than {} a second came from this address",
                               state_.options.limits.requests_per_second),
                   "", fmt::format("try again in {} ms", wait->count())},
                  *wait);
}

void RequestReader::Take(IncomingRequest& incoming, RequestParser& parser) {
  Request& request = incoming.request;
  request.method = parser.head().method;
  request.fields = std::move(parser.fields());
  request.body = std::move(parser.body());
  request.peer = connection_.peer().address;
  request.certificate = certificate_;
  auto trace = TraceOf(request.Field("traceparent"));
  request.trace = trace ? *std::move(trace) : state_.traces.Next();
  // Where a request was not taken to its end, nobody knows where the next one begins.
  incoming.keeps_alive = parser.IsDone() && !parser.failure() && parser.KeepsAlive();
  auto target = ParseTarget(parser.head().target);
  if (target) {
    incoming.encoded_path = std::move(target->encoded_path);
    request.path = std::move(target->path);
    request.query = std::move(target->query);
  } else if (!incoming.refusal) {
    incoming.refusal =
        ProblemResponse({400, "Not a target", "The request's target " + target.error().message, "",
                         "send a path with its special bytes escaped, as %2F is"});
  }
}

}  // namespace perseus::http
