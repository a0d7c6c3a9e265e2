#include "perseus/cluster/http/connection.h"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <utility>

#include "perseus/cluster/http/event_stream.h"
#include "perseus/cluster/http/request_reader.h"
#include "perseus/cluster/http/response_text.h"

namespace perseus::http {
namespace {

// A stream for as long as somebody holds it.
class HeldStream : public Stream {
 public:
  explicit HeldStream(std::shared_ptr<EventStream> stream) : stream_(std::move(stream)) {}
  ~HeldStream() override { stream_->Close(); }
  void Send(std::shared_ptr<const std::string> text) override { stream_->Send(std::move(text)); }
  bool IsOpen() const override { return stream_->IsOpen(); }
  void Close() override { stream_->Close(); }
  void OnClose(std::function<void()> closed) override { stream_->OnClose(std::move(closed)); }

 private:
  std::shared_ptr<EventStream> stream_;
};

Problem NoRoute(const Request& request) {
  return {404, "Nothing is here", fmt::format("There is no {}", request.path), "",
          "see /openapi.yaml"};
}

Response NoMethod(const Request& request, const std::string& allow) {
  Response response = ProblemResponse(
      {405, "Not by this method", fmt::format("{} is not for {}", request.path, request.method), "",
       fmt::format("use {}", allow)});
  response.fields.emplace_back("Allow", allow);
  return response;
}

Response Failed() {
  return ProblemResponse({500, "The server failed", "It is the server's fault; its log says why",
                          "", "try again, and report it if it stays"});
}

// The requests of one connection, one after another.
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
      // Others have their turn, however many requests this one has sent already.
      co_await asio::post(state_.loop, asio::use_awaitable);
    }
  }

 private:
  asio::awaitable<Response> Route(IncomingRequest& incoming) {
    connection_->NeverExpire();  // However long it takes us.
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
      return FailAs(ErrorKind::kSystem,
                    "no more event streams can be served here (try again later)");
    }
    stream_ = std::make_shared<EventStream>(connection_);
    stream_->Start();
    if (call.request.method == "HEAD") stream_->Close();
    Tell(call.request, 200, incoming);
    return std::make_shared<HeldStream>(stream_);
  }

  void Tell(const Request& request, int status, const IncomingRequest& incoming) const {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - incoming.begin;
    if (state_.options.answered) state_.options.answered(request, pattern_, status, took.count());
  }

  // False: no request can follow.
  asio::awaitable<bool> Answer(const IncomingRequest& incoming, Response& response) {
    AddTrace(response, incoming.request.trace, state_.traces);
    const bool keeps_alive = incoming.keeps_alive && !state_.is_stopping;
    const std::string head =
        ResponseHead(response, keeps_alive ? Afterwards::kKeep : Afterwards::kClose);
    std::vector<std::string_view> texts = {head};
    if (incoming.request.method != "HEAD" && HasBody(response.status)) {
      texts.push_back(response.body);
    }
    Tell(incoming.request, response.status, incoming);
    pattern_.clear();
    connection_->ExpireAfter(state_.options.limits.request_time);
    if (!co_await connection_->Write(std::move(texts))) co_return false;
    if (!keeps_alive) co_await connection_->CloseGracefully(state_.scratch);
    co_return keeps_alive;
  }

  std::shared_ptr<Connection> connection_;
  ServerState& state_;
  RequestReader reader_;
  std::string pattern_;                  // Of the request in hand.
  std::shared_ptr<EventStream> stream_;  // What the connection has become.
};

}  // namespace

asio::awaitable<void> Serve(std::shared_ptr<Connection> connection) {
  try {
    connection->ExpireAfter(connection->state().options.limits.request_time);
    if (co_await connection->Handshake()) {
      Session session(connection);
      co_await session.Run();
    } else if (!connection->WasLate()) {
      // The other side learns why.
      co_await connection->CloseGracefully(connection->state().scratch);
    }
  } catch (...) {
    // Out of memory, or a function of the options: this connection ends, the server goes on.
    connection->Close();
  }
}

asio::awaitable<void> Refuse(std::shared_ptr<Connection> connection) {
  try {
    Response response = ProblemResponse({503, "Too many connections",
                                         "No more can be served here, or from this address", "",
                                         "try again later, or close connections"});
    response.fields.emplace_back("Retry-After", "1");
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
