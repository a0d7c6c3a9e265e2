#include "perseus/cluster/http/client.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/json_text.h"
#include "perseus/base/random.h"
#include "perseus/cluster/http/client_connection.h"
#include "perseus/cluster/http/event_parser.h"
#include "perseus/cluster/http/parser.h"

namespace perseus::http {
namespace {

using std::chrono::milliseconds;
using Clock = ClientConnection::Clock;
using TimeLimit = ClientConnection::TimeLimit;

constexpr std::size_t kLongestHeader = 64 << 10;
constexpr milliseconds kFirstPause{100};
constexpr milliseconds kLongestPause{5000};
constexpr milliseconds kClientPollInterval{100};  // How often should_end is called.

bool IsOneLine(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

ErrorKind KindOf(int status) {
  if (status == 409 || status == 422) return ErrorKind::kUnreachable;
  if (status == 408 || status == 429 || status / 100 != 4) return ErrorKind::kSystem;
  return ErrorKind::kInput;
}

std::string Member(const nlohmann::json& document, const char* name) {
  const auto member = document.find(name);
  return member != document.end() && member->is_string() ? member->get<std::string>() : "";
}

// Returns a remedy for an answer that does not name a remedy, such as the answer of a proxy or of
// another program.
std::string_view RemedyOf(int status) {
  if (status == 401 || status == 403) return "give a token that the server accepts: `token_file`";
  if (status / 100 == 5) return "try again; if it fails again, see the log of the server";
  return "is this the address of a perseus server?";
}

// Returns an error such as: /schedule/kind: "zigzag" is not a schedule (choose 1f1b)
Error ErrorOf(const Response& response) {
  Error error{.what = {}, .kind = KindOf(response.status)};
  const auto document = ParseJson(response.body);
  if (document.is_object()) {
    error.what = OneLine(Member(document, "detail"));
    if (error.what.empty()) error.what = OneLine(Member(document, "title"));
    error.context = error.where.pointer = OneLine(Member(document, "pointer"));
    error.remedy = OneLine(Member(document, "remedy"));
    const std::string trace = OneLine(Member(document, "trace"));
    // With the trace id, the user can find the reason in the log of the server.
    if (response.status == 500 && !trace.empty()) error.remedy += fmt::format("; trace {}", trace);
  }
  if (error.what.empty()) {
    error.what = fmt::format("the server answered with status {}", response.status);
    if (error.remedy.empty()) error.remedy = RemedyOf(response.status);
  }
  return error;
}

bool NeedsMore(const ResponseParser& parser) {
  return !parser.IsDone() && parser.failure().empty();
}

// Returns the reason if the server closed the connection without an answer.
Error ClosedBy(const ServerUrl& server) {
  return {.what = server.is_tls ? "it closed the connection"
                                : "it closed the connection; if it uses TLS, write https://",
          .kind = ErrorKind::kSystem};
}

// How one connection of an event stream ended.
struct StreamEnd {
  std::string lost;            // Why the stream broke. Empty: it ended as intended.
  std::optional<Error> error;  // Set if another attempt cannot help.
  bool has_received = false;   // Whether the stream had any bytes.
};

// Checks the answer to a request for an event stream. Empty if the answer is an event stream.
StreamEnd StreamEndOf(ResponseParser& parser) {
  const std::string& type = parser.fields()["content-type"];
  if (parser.status() == 200 && type.starts_with("text/event-stream")) return {};
  if (parser.status() == 200) {
    return {"",
            Error{.what = fmt::format("the answer is {}, not an event stream", type),
                  .remedy = "is this a server of Perseus?"},
            false};
  }
  Response response;
  response.status = parser.status();
  response.body = parser.body();
  const Error error = ErrorOf(response);
  if (error.kind == ErrorKind::kSystem) return {error.Message(), std::nullopt, false};
  return {"", error, false};
}

}  // namespace

class Client::Impl {
 public:
  Impl(ClientOptions options, std::vector<ServerUrl> servers, TlsContext tls)
      : options_(std::move(options)), servers_(std::move(servers)), tls_(std::move(tls)) {}

  Result<Response> Send(const Outgoing& request);
  Result<void> Listen(const Listening& listening);

 private:
  // What an exchange reached: nothing was sent, something was sent, or the answer began.
  enum class Reached { kNothing, kServer, kAnswer };
  struct Outcome {
    std::optional<Response> response;
    Reached reached = Reached::kNothing;
    Error failure = {};
  };

  // Idempotent methods have the same effect if the server receives the request twice.
  static bool IsHarmlessToRepeat(const Outcome& outcome, std::string_view method) {
    if (outcome.reached != Reached::kServer) return outcome.reached == Reached::kNothing;
    return method == "GET" || method == "HEAD" || method == "PUT" || method == "DELETE";
  }

  const ServerUrl& Current() const { return servers_[current_]; }
  void TryNext() {
    kept_.reset();
    current_ = (current_ + 1) % servers_.size();
  }

  Result<std::string> Text(const Outgoing& request);
  Outcome SendToCurrent(const Outgoing& request, const std::string& text, Clock::time_point until);
  Outcome Exchange(const Outgoing& request, const std::string& text, const TimeLimit& limit);
  Outcome ReadResponse(Expected expected, const TimeLimit& limit);

  StreamEnd ListenOnce(const Listening& listening, std::string& last_id);
  StreamEnd ReadEvents(const Listening& listening, std::string& last_id);

  ClientOptions options_;
  std::vector<ServerUrl> servers_;
  TlsContext tls_;
  std::size_t current_ = 0;
  std::optional<ClientConnection> kept_;  // To the current server.
  SplitMix64 random_{std::random_device()()};
};

Result<std::string> Client::Impl::Text(const Outgoing& request) {
  std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n", request.method, request.target,
                                 Current().text.substr(Current().text.find("//") + 2));
  bool is_valid = request.target.starts_with('/') && IsOneLine(request.target) &&
                  request.target.find(' ') == std::string::npos;
  const std::string token = options_.token_of ? options_.token_of() : options_.token;
  if (!token.empty()) text += fmt::format("Authorization: Bearer {}\r\n", token);
  is_valid = is_valid && IsOneLine(token);
  if (!request.body.empty()) text += fmt::format("Content-Type: {}\r\n", request.content_type);
  if (!request.body.empty() || request.method == "POST" || request.method == "PUT") {
    text += fmt::format("Content-Length: {}\r\n", request.body.size());
  }
  for (const auto& [name, value] : request.fields) {
    text += fmt::format("{}: {}\r\n", name, value);
    is_valid = is_valid && IsOneLine(name) && IsOneLine(value);
  }
  if (!is_valid)
    return Fail("{} is not a valid target (escape special characters)", request.target);
  return text + "\r\n" + request.body;
}

Result<Response> Client::Impl::Send(const Outgoing& request) {
  const auto until = Clock::now() + options_.timeout;
  Error all{.what = "no server answers", .kind = ErrorKind::kSystem};
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    PERSEUS_ASSIGN_OR_RETURN(const auto text, Text(request));
    Outcome outcome = SendToCurrent(request, text, until);
    if (outcome.response) return *std::move(outcome.response);
    const std::string server = Current().text;
    TryNext();
    // Only a failed handshake has a remedy. If the handshake failed, the server has not processed
    // the request.
    const std::string& remedy = outcome.failure.remedy;
    if (!IsHarmlessToRepeat(outcome, request.method)) {
      return FailAs(ErrorKind::kSystem, "{} did not answer: {} ({})", server,
                    outcome.failure.Cause(),
                    remedy.empty() ? "it may have processed the request" : remedy);
    }
    all.what += fmt::format("{} {}: {}", i == 0 ? ":" : ";", server, outcome.failure.Cause());
    if (!remedy.empty()) all.remedy = remedy;
  }
  if (all.remedy.empty()) all.remedy = "is it running, and is this its address?";
  return tl::unexpected<Error>(std::move(all));
}

Client::Impl::Outcome Client::Impl::SendToCurrent(const Outgoing& request, const std::string& text,
                                                  Clock::time_point until) {
  if (kept_ && kept_->IsUsable()) {
    Outcome outcome = Exchange(request, text, {until, options_.should_end});
    // The server may just have closed the idle connection. Then a new connection may succeed.
    if (outcome.response || !IsHarmlessToRepeat(outcome, request.method) || Clock::now() >= until)
      return outcome;
  }
  kept_.reset();
  // Each server gets a share of the time, so that a silent server leaves time for the others.
  const auto share = options_.timeout / static_cast<int>(servers_.size());
  auto connection = ClientConnection::Open(
      Current(), tls_, {std::min(until, Clock::now() + share), options_.should_end});
  if (!connection) return {std::nullopt, Reached::kNothing, connection.error()};
  kept_ = *std::move(connection);
  return Exchange(request, text, {until, options_.should_end});
}

Client::Impl::Outcome Client::Impl::Exchange(const Outgoing& request, const std::string& text,
                                             const TimeLimit& limit) {
  const auto written = kept_->Write(text, limit);
  if (written.failure && written.bytes == 0) {
    kept_.reset();
    return {std::nullopt, Reached::kNothing, *written.failure};
  }
  // If writing failed midway, the server may have sent the reason before it closed the connection.
  Outcome outcome =
      ReadResponse(request.method == "HEAD" ? Expected::kNoBody : Expected::kBody, limit);
  if (!outcome.response || written.failure) {
    kept_->Abandon();
    kept_.reset();
  }
  return outcome;
}

Client::Impl::Outcome Client::Impl::ReadResponse(Expected expected, const TimeLimit& limit) {
  ResponseParser parser(expected, {kLongestHeader, options_.longest_body});
  std::string input;
  Reached reached = Reached::kServer;
  while (NeedsMore(parser)) {
    const auto received = kept_->Read(limit);
    if (!received) return {std::nullopt, reached, received.error()};
    if (received->empty()) {
      if (reached == Reached::kServer) return {std::nullopt, reached, ClosedBy(Current())};
      parser.End();
      break;
    }
    reached = Reached::kAnswer;
    input += *received;
    for (std::size_t used = 1; used > 0 && !input.empty() && NeedsMore(parser);) {
      used = parser.Put(input);
      input.erase(0, used);
    }
  }
  if (!parser.failure().empty()) {
    return {std::nullopt, reached, Error{"its answer is not HTTP: " + parser.failure()}};
  }
  Response response;
  response.status = parser.status();
  response.content_type = parser.fields()["content-type"];
  response.body = std::move(parser.body());
  response.fields.assign(parser.fields().begin(), parser.fields().end());
  if (!parser.KeepsAlive() || !input.empty()) kept_.reset();
  return {std::move(response), reached};
}

Result<void> Client::Impl::Listen(const Listening& listening) {
  std::string last_id = listening.last_event_id;
  milliseconds pause{0};
  std::size_t tried = 0;
  // The last reason of each server. Each reason is reported once.
  std::map<std::string, std::string> reasons;
  while (!listening.should_end || !listening.should_end()) {
    const std::string server = Current().text;
    if (listening.position) last_id = listening.position();
    const StreamEnd end = ListenOnce(listening, last_id);
    if (end.error) return tl::unexpected<Error>(*end.error);
    if (end.lost.empty()) return {};
    if (end.has_received) reasons.clear();
    if (std::exchange(reasons[server], end.lost) != end.lost && listening.on_change) {
      listening.on_change(fmt::format("{} {}: {}; trying again",
                                      end.has_received ? "lost" : "cannot connect to", server,
                                      end.lost));
    }
    TryNext();
    if (end.has_received) {
      pause = milliseconds(0);
      tried = 0;
    }
    // All servers are tried at once. Further rounds follow after growing pauses.
    if (++tried % servers_.size() != 0 || end.has_received) continue;
    pause = std::clamp(pause * 2, kFirstPause, kLongestPause);
    const auto scattered =
        std::chrono::duration_cast<Clock::duration>(pause * (0.5 + 0.5 * Uniform(random_)));
    const auto until = Clock::now() + scattered;
    while (Clock::now() < until && !(listening.should_end && listening.should_end())) {
      std::this_thread::sleep_for(
          std::min<Clock::duration>(kClientPollInterval, until - Clock::now()));
    }
  }
  return {};
}

StreamEnd Client::Impl::ListenOnce(const Listening& listening, std::string& last_id) {
  Outgoing request;
  request.target = listening.target;
  request.fields = {{"Accept", "text/event-stream"}};
  if (!last_id.empty()) request.fields.emplace("Last-Event-ID", last_id);
  const auto text = Text(request);
  if (!text) return {"", text.error(), false};
  const TimeLimit limit{Clock::now() + options_.timeout, listening.should_end};
  auto connection = ClientConnection::Open(Current(), tls_, limit);
  if (!connection) return {connection.error().Message(), std::nullopt, false};
  kept_ = *std::move(connection);
  const auto written = kept_->Write(*text, limit);
  StreamEnd end = written.failure ? StreamEnd{written.failure->Message(), {}, false}
                                  : ReadEvents(listening, last_id);
  kept_.reset();
  if (listening.should_end && listening.should_end()) end.lost.clear();
  return end;
}

StreamEnd Client::Impl::ReadEvents(const Listening& listening, std::string& last_id) {
  ResponseParser parser(Expected::kBody, {kLongestHeader, std::numeric_limits<std::size_t>::max()});
  EventParser events(last_id);
  std::string input;
  StreamEnd end;
  bool is_stream = false;
  while (true) {
    const auto most = is_stream ? listening.silence : options_.timeout;
    const auto received = kept_->Read({Clock::now() + most, listening.should_end});
    const bool has_ended = !received || received->empty();
    if (received) input += *received;
    for (std::size_t used = 1; used > 0 && !input.empty() && NeedsMore(parser);) {
      used = parser.Put(input);
      input.erase(0, used);
    }
    if (parser.HasHeader() && !is_stream) {
      if (parser.status() != 200 && !has_ended && NeedsMore(parser)) continue;
      end = StreamEndOf(parser);
      if (end.error || !end.lost.empty()) return end;
      is_stream = true;
      if (listening.on_change) listening.on_change(fmt::format("connected to {}", Current().text));
    }
    const auto put = events.Put(std::exchange(parser.body(), ""));
    end.has_received = end.has_received || (is_stream && received && !received->empty());
    last_id = events.last_id();
    if (!put) return {put.error().Message(), std::nullopt, end.has_received};
    for (const Event& event : *put) {
      if (!listening.on_event(event)) return {};
    }
    if (!received) return {received.error().Message(), std::nullopt, end.has_received};
    if (has_ended || !NeedsMore(parser)) {
      return {"it ended the stream", std::nullopt, end.has_received};
    }
  }
}

Result<Client> Client::Create(ClientOptions options) {
  PERSEUS_ASSIGN_OR_RETURN(auto servers, ParseServerUrls(options.server));
  if (!IsOneLine(options.token)) {
    return Fail("the token has invalid characters (give it as perseus token create printed it)");
  }
  TlsContext tls;
  const bool needs_tls = std::any_of(servers.begin(), servers.end(),
                                     [](const ServerUrl& server) { return server.is_tls; });
  if (needs_tls) {
    PERSEUS_ASSIGN_OR_RETURN(tls, ClientTls({options.authority, options.certificate, options.key}));
  }
  return Client(std::make_unique<Impl>(std::move(options), std::move(servers), std::move(tls)));
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

Result<Response> Client::Send(const Outgoing& request) { return impl_->Send(request); }

Result<Response> Client::SendOrFail(const Outgoing& request) {
  auto response = Send(request);
  if (!response || response->status / 100 == 2) return response;
  return tl::unexpected<Error>(ErrorOf(*response));
}

Result<std::string> Client::Fetch(const Outgoing& request) {
  PERSEUS_ASSIGN_OR_RETURN(auto response, SendOrFail(request));
  return std::move(response.body);
}

Result<void> Client::Listen(const Listening& listening) { return impl_->Listen(listening); }

std::string PercentEncoded(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') ||
                          std::string_view("-._~").find(c) != std::string_view::npos;
    encoded += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return encoded;
}

}  // namespace perseus::http
