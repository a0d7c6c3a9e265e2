#include "perseus/base/json_text.h"
#include "perseus/cluster/http/server_state.h"

#include <fmt/core.h>

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/random_id.h"
#include "perseus/cluster/http/event_stream.h"
#include "perseus/cluster/http/request_reader.h"
#include "perseus/cluster/http/response_text.h"

namespace perseus::http {
namespace {

Problem NoRoute(const Request& request) {
  return {404, "Unknown path", fmt::format("{} does not exist", request.path), "",
          "see /openapi.yaml"};
}

Response NoMethod(const Request& request, const std::string& allow) {
  Response response =
      ProblemResponse({405, "Unsupported method",
                       fmt::format("{} does not support {}", request.path, request.method), "",
                       fmt::format("use {}", allow)});
  response.fields.emplace_back("Allow", allow);
  return response;
}

Response Failed() {
  return ProblemResponse({500, "The server failed",
                          "An error in the server; its log has the reason", "",
                          "try again, and report the error if it remains"});
}

// Adds the trace id to a response: as the field `traceresponse`, and for a 5xx problem also as the
// member `trace`. With it, the request can be found in the server's log.
void AddTrace(Response& response, std::string_view trace) {
  constexpr std::size_t kSpanBytes = 8;
  response.fields.emplace_back("traceresponse",
                               fmt::format("00-{}-{}-00", trace, RandomHex(kSpanBytes)));
  if (response.status < 500 || response.content_type != kProblemType) return;
  auto document = nlohmann::ordered_json::parse(response.body);
  document["trace"] = trace;
  response.body = JsonText(document) + "\n";
}

// Answers the requests of one connection, one after another.
class Session {
 public:
  explicit Session(std::shared_ptr<Connection> connection)
      : connection_(std::move(connection)), state_(connection_->state()), reader_(*connection_) {}

  asio::awaitable<void> Run() {
    while (const auto incoming = co_await reader_.Next()) {
      Response response;
      pattern_ = incoming->match.pattern;
      if (incoming->refusal) {
        response = *std::move(incoming->refusal);
      } else {
        response = co_await Route(*incoming);
      }
      if (stream_) co_return;
      if (!co_await Answer(*incoming, response)) co_return;
      // Let other connections run, even if this client has sent many requests.
      co_await asio::post(state_.loop, asio::use_awaitable);
    }
  }

 private:
  asio::awaitable<Response> Route(IncomingRequest& incoming) {
    connection_->NeverExpire();  // A handler may take as long as it needs.
    Router::Match& match = incoming.match;
    if (match.handler == nullptr) {
      co_return match.allow.empty() ? ProblemResponse(NoRoute(incoming.request))
                                    : NoMethod(incoming.request, match.allow);
    }
    Call call{std::move(incoming.request), std::move(match.path), nullptr,
              [this] { return connection_->IsPeerThere(); }};
    call.open_stream = [this, &call, &incoming] { return OpenStream(call, incoming); };
    Response response;
    std::string failure;
    try {
      response = co_await (*match.handler)(call);
    } catch (const std::exception& error) {
      failure = error.what();
      response = Failed();
    } catch (...) {
      failure = "unknown exception";
      response = Failed();
    }
    incoming.request = std::move(call.request);
    if (!failure.empty() && state_.options.failed) {
      state_.options.failed(incoming.request, pattern_, failure);
    }
    co_return response;
  }

  Result<std::shared_ptr<Stream>> OpenStream(const Call& call, const IncomingRequest& incoming) {
    if (stream_) return FailAs(ErrorKind::kSystem, "this request already has an event stream");
    if (state_.streams.size() >= static_cast<std::size_t>(state_.options.limits.streams) ||
        state_.is_stopping) {
      return FailAs(ErrorKind::kSystem, "the server has too many event streams (try again later)");
    }
    stream_ = std::make_shared<EventStream>(connection_);
    stream_->Start();
    if (call.request.method == "HEAD") stream_->Close();
    Report(call.request, 200, incoming);
    // Closes the stream when the handler no longer holds it.
    return std::shared_ptr<Stream>(stream_.get(), [held = stream_](Stream*) { held->Close(); });
  }

  void Report(const Request& request, int status, const IncomingRequest& incoming) const {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - incoming.begin;
    if (state_.options.answered) state_.options.answered(request, pattern_, status, took.count());
  }

  // Returns false if no request can follow.
  asio::awaitable<bool> Answer(const IncomingRequest& incoming, Response& response) {
    AddTrace(response, incoming.request.trace);
    const bool keeps_alive = incoming.keeps_alive && !state_.is_stopping;
    const std::string head =
        ResponseHead(response, keeps_alive ? Afterwards::kKeep : Afterwards::kClose);
    std::vector<std::string_view> texts = {head};
    if (incoming.request.method != "HEAD" && HasBody(response.status)) {
      texts.push_back(response.body);
    }
    Report(incoming.request, response.status, incoming);
    pattern_.clear();
    connection_->ExpireAfter(state_.options.limits.request_time);
    if (!co_await connection_->Write(std::move(texts))) co_return false;
    if (!keeps_alive) co_await connection_->CloseGracefully(state_.scratch);
    co_return keeps_alive;
  }

  std::shared_ptr<Connection> connection_;
  ServerState& state_;
  RequestReader reader_;
  std::string pattern_;                  // The route of the current request.
  std::shared_ptr<EventStream> stream_;  // Set once the connection is an event stream.
};

}  // namespace

asio::awaitable<void> Serve(std::shared_ptr<Connection> connection) {
  try {
    connection->ExpireAfter(connection->state().options.limits.request_time);
    if (co_await connection->Handshake()) {
      Session session(connection);
      co_await session.Run();
    } else if (!connection->WasLate()) {
      // The other side has to receive the TLS alert with the reason.
      co_await connection->CloseGracefully(connection->state().scratch);
    }
  } catch (...) {
    // Out of memory, or a function in the options threw. Only this connection ends.
    connection->Close();
  }
}

asio::awaitable<void> Refuse(std::shared_ptr<Connection> connection) {
  try {
    const Response response =
        ProblemResponse({503, "Too many connections", "The server has too many connections", "",
                         "try again later, or close connections", 1});
    const std::string head = ResponseHead(response, Afterwards::kClose);
    connection->ExpireAfter(connection->state().options.limits.request_time);
    std::vector<std::string_view> texts = {head, response.body};
    if (co_await connection->Write(std::move(texts))) {
      co_await connection->CloseGracefully(connection->state().scratch);
    }
  } catch (...) {
    connection->Close();
  }
}

}  // namespace perseus::http
