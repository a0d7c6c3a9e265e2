#include "perseus/cluster/http/request_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/random_id.h"
#include "perseus/cluster/http/target.h"

namespace perseus::http {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kTraceBytes = 16;

Response TooManyBodies() {
  return ProblemResponse({503, "Too many requests at once",
                          "The running requests use all memory for bodies", "", "try again later",
                          1});
}

Response NoSuchQuery(const std::string& name, const std::vector<std::string>& known) {
  return ProblemResponse({400, "The request is wrong",
                          fmt::format("the query field {} is unknown", Excerpt(name)), "?" + name,
                          known.empty()
                              ? "send no query"
                              : fmt::format("the query fields are {}", fmt::join(known, ", "))});
}

// Returns the media type without parameters: for "text/csv; charset=utf-8" it is "text/csv".
std::string MediaType(std::string_view field) {
  std::string type(field.substr(0, field.find_first_of("; \t")));
  for (char& c : type) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return type;
}

// Returns a refusal if the route does not accept a request with this header.
std::optional<Response> HeadRefusal(const Request& request, const Takes& takes, bool has_body) {
  for (const auto& [name, value] : request.query) {
    if (std::find(takes.query.begin(), takes.query.end(), name) == takes.query.end()) {
      return NoSuchQuery(name, takes.query);
    }
  }
  if (!has_body) return std::nullopt;
  const std::string type = MediaType(request.Field("content-type"));
  if (!type.empty() && type != takes.media_type) {
    return ProblemResponse({415, "Unsupported type of body",
                            fmt::format("The type is {}", Excerpt(type)), "",
                            fmt::format("send the header \"Content-Type: {0}\" (curl: add -H "
                                        "'Content-Type: {0}')",
                                        takes.media_type)});
  }
  const std::string encoding = MediaType(request.Field("content-encoding"));
  if (!encoding.empty() && encoding != "identity") {
    return ProblemResponse({415, "Unsupported encoding of the body",
                            fmt::format("The Content-Encoding is {}", Excerpt(encoding)), "",
                            "send the body without encoding"});
  }
  return std::nullopt;
}

Response TooSlow(milliseconds most) {
  return ProblemResponse({408, "The request is too slow",
                          fmt::format("It was not complete after {} ms", most.count()), "",
                          "send each request at once, or raise the limit of the server"});
}

}  // namespace

std::optional<std::string> ParseTraceParent(std::string_view text) {
  // version-trace-parent-flags: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
  constexpr std::string_view kForm = "xx-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx";
  const std::string_view start = text.substr(0, kForm.size());
  const auto fits = [](char form, char c) {
    return form == 'x' ? (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') : c == form;
  };
  if (!std::ranges::equal(kForm, start, fits)) return std::nullopt;
  const std::string_view trace = start.substr(3, 32);
  const auto is_zero = [](std::string_view id) { return id.find_first_not_of('0') == id.npos; };
  if (start.starts_with("ff") || is_zero(trace) || is_zero(start.substr(36, 16))) {
    return std::nullopt;
  }
  // Later versions of the format may be longer.
  const std::string_view rest = text.substr(start.size());
  if (!rest.empty() && (start.starts_with("00") || rest.front() != '-')) return std::nullopt;
  return std::string(trace);
}

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
  RequestParser parser({limits.header_bytes, std::numeric_limits<std::size_t>::max()});
  if (!co_await Read(*incoming, parser)) co_return nullptr;
  if (!incoming->has_head) TakeHead(*incoming, parser);
  incoming->request.body = std::move(parser.body());
  // If the end of this request was not reached, the beginning of the next one is unknown.
  incoming->keeps_alive = parser.IsDone() && !parser.failure() && parser.KeepsAlive();
  co_return incoming;
}

asio::awaitable<bool> RequestReader::AwaitFirstByte() {
  if (!input_.empty()) co_return true;
  if (state_.is_stopping) co_return false;
  input_ = std::string();  // Free the memory, because thousands of connections may be idle.
  connection_.is_idle = true;
  connection_.ExpireAfter(state_.options.limits.idle_time);
  const bool has_input = co_await connection_.ReadMore(input_, state_.scratch);
  connection_.is_idle = false;
  co_return has_input;
}

asio::awaitable<bool> RequestReader::Read(IncomingRequest& incoming, RequestParser& parser) {
  while (true) {
    const std::size_t used = parser.Put(input_);
    input_.erase(0, used);
    if (parser.failure()) {
      incoming.refusal = ProblemResponse(*parser.failure());
      co_return true;
    }
    if (parser.HasHeader() && !incoming.has_head) {
      const bool expects_continue = parser.ExpectsContinue();
      TakeHead(incoming, parser);
      CheckHead(incoming, parser);
      if (incoming.refusal) co_return true;
      if (!parser.IsDone() && expects_continue && input_.empty()) {
        std::vector<std::string_view> interim = {"HTTP/1.1 100 Continue\r\n\r\n"};
        if (!co_await connection_.Write(std::move(interim))) co_return false;
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
  const auto wait =
      state_.rates.TimeToWait(connection_.peer().address, std::chrono::steady_clock::now());
  if (!wait) return std::nullopt;
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(*wait).count();
  return ProblemResponse({429, "Too many requests",
                          fmt::format("This address sent more than {} per second",
                                      state_.options.limits.requests_per_second),
                          "", fmt::format("try again in {} ms", wait->count()),
                          static_cast<int>(seconds)});
}

void RequestReader::CheckHead(IncomingRequest& incoming, RequestParser& parser) {
  if (auto refusal = RateRefusal()) incoming.refusal = std::move(refusal);
  if (incoming.refusal) return;
  const Takes nothing_special;  // For unknown routes.
  const Takes* takes = incoming.match.takes;
  if (takes != nullptr) incoming.refusal = HeadRefusal(incoming.request, *takes, !parser.IsDone());
  if (incoming.refusal) return;
  const std::size_t most = takes != nullptr ? takes->body_bytes : nothing_special.body_bytes;
  parser.LimitBody(std::min(most, state_.options.limits.body_bytes));
  if (parser.failure()) incoming.refusal = ProblemResponse(*parser.failure());
}

void RequestReader::TakeHead(IncomingRequest& incoming, RequestParser& parser) {
  incoming.has_head = true;
  Request& request = incoming.request;
  request.method = parser.head().method;
  request.fields = std::move(parser.fields());
  request.repeated = std::move(parser.repeated());
  request.peer = connection_.peer().address;
  request.is_over_unix_socket = connection_.peer().is_over_unix_socket;
  if (state_.options.finds_local_users && request.Field("authorization").empty()) {
    request.user = connection_.LocalUser();
  }
  request.certificate = certificate_;
  request.trace = ParseTraceParent(request.Field("traceparent")).value_or(RandomHex(kTraceBytes));
  auto target = ParseTarget(parser.head().target);
  if (target) {
    incoming.match = state_.router.Find(request.method, target->encoded_path);
    request.path = std::move(target->path);
    request.query = std::move(target->query);
  }
  if (incoming.refusal) return;
  if (!target) {
    incoming.refusal = ProblemResponse({400, "The target is invalid",
                                        "The target of the request " + target.error().Message(), "",
                                        "send a path, with special bytes escaped (such as %2F)"});
  } else if (target->repeated) {
    incoming.refusal = ProblemResponse(
        {400, "The request is wrong",
         fmt::format("the query has the field {} twice", Excerpt(*target->repeated)),
         "?" + *target->repeated, "leave one of them out"});
  }
}

}  // namespace perseus::http
