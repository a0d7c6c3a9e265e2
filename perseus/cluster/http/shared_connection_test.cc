// Tests a connection that has an event stream and requests: the server with arbitrary bytes, and
// the client with servers that behave well and badly.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <future>
#include <mutex>

#include "perseus/cluster/http/client.h"
#include "perseus/cluster/http/client_stream.h"
#include "perseus/cluster/http/test_server.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_certificates.h"

namespace perseus::http {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kOpen =
    "GET /events HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: perseus-node\r\n\r\n";

std::string Post(std::string_view target, std::string_view body) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{}", target,
                     body.size(), body);
}

// GET /events opens a stream, POST /echo answers with the body, POST /large with many bytes, and
// POST /slow once Finish is called.
class SharedServer {
 public:
  explicit SharedServer(ServerOptions options = {}) : server_(Routes(), std::move(options)) {}
  ~SharedServer() {
    server_.OnLoop([this] {
      open_.clear();
      waiting_.reset();
      return 0;
    });
  }

  // Sends the same event to each stream that is open.
  void Broadcast(const std::string& data) {
    WithEach([&](Stream& stream) {
      stream.Send(std::make_shared<const std::string>(FormatEvent({"", "", data})));
    });
  }
  template <typename Work>
  void WithEach(Work work) {
    server_.OnLoop([&] {
      for (const auto& stream : open_) work(*stream);
      return 0;
    });
  }
  void Finish() {
    server_.OnLoop([&] {
      if (waiting_) waiting_->cancel();
      return 0;
    });
  }
  TestServer& server() { return server_; }
  int asked() const { return asked_; }  // Requests other than GET /events.

 private:
  Router Routes() {
    Router router;
    router.Add("GET", "/events", [this](const Call& call) -> asio::awaitable<Response> {
      auto stream = call.open_stream();
      if (!stream) co_return ProblemResponse({503, "No", stream.error().message});
      open_.push_back(*std::move(stream));
      co_return Response();
    });
    router.Add("POST", "/echo", [this](const Call& call) -> asio::awaitable<Response> {
      ++asked_;
      co_return Response{.body = call.request.body};
    });
    router.Add("POST", "/large", [](const Call&) -> asio::awaitable<Response> {
      co_return Response{.body = std::string(5'000'000, 'x')};
    });
    router.Add("POST", "/slow", [this](const Call&) -> asio::awaitable<Response> {
      ++asked_;
      waiting_ = std::make_unique<asio::steady_timer>(co_await asio::this_coro::executor,
                                                      std::chrono::hours(1));
      boost::system::error_code ignored;
      co_await waiting_->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      co_return Response{.body = "slow"};
    });
    return router;
  }

  std::vector<std::shared_ptr<Stream>> open_;
  std::unique_ptr<asio::steady_timer> waiting_;
  std::atomic<int> asked_ = 0;
  TestServer server_;
};

RawClient Opened(SharedServer& server) {
  RawClient client(server.server().port());
  client.Send(kOpen);
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), StartsWith("HTTP/1.1 101 Switching Protocols\r\n"));
  return client;
}

bool HasNoConnection(SharedServer& server) {
  return server.server().Until(
      [](const auto& counts) { return counts.connections == 0 && counts.streams == 0; });
}

TEST(SharedConnection, HasEventsAndAnswersInTurns) {
  SharedServer server({.limits = WithoutHeartbeats()});
  RawClient client = Opened(server);
  server.Broadcast("one");
  EXPECT_EQ(client.ReadUntil("\n\n"), "data: one\n\n");
  // Two requests at once are answered in order. An error does not end the connection.
  client.Send(Post("/echo", "first") + Post("/none", "") + Post("/echo", "second"));
  EXPECT_THAT(client.ReadResponse(), AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("first")));
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(client.ReadResponse(), AllOf(HasSubstr("traceresponse: "), HasSubstr("second")));
  server.Broadcast("two");
  EXPECT_EQ(client.ReadUntil("\n\n"), "data: two\n\n");
  EXPECT_EQ(server.server().Counts().connections, 1);
  client.Send(kOpen);
  EXPECT_THAT(client.ReadResponse(), HasSubstr("this connection already has an event stream"));
}

TEST(SharedConnection, OnlyIfTheClientAsksForIt) {
  SharedServer server({.limits = WithoutHeartbeats()});
  for (const char* fields :
       {"", "Upgrade: perseus-node\r\n", "Connection: Upgrade\r\nUpgrade: websocket\r\n"}) {
    RawClient client(server.server().port());
    client.Send(fmt::format("GET /events HTTP/1.1\r\nHost: a\r\n{}\r\n", fields));
    EXPECT_THAT(client.ReadUntil("\r\n\r\n"), StartsWith("HTTP/1.1 200 ")) << fields;
    client.Send("x");
    EXPECT_TRUE(client.IsClosedByServer());
  }
  RawClient refused(server.server().port());
  refused.Send(
      "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: perseus-node\r\n"
      "Content-Length: 0\r\n\r\n");
  EXPECT_THAT(refused.ReadResponse(), StartsWith("HTTP/1.1 200 "));
}

// More than the client of a stream may leave unread, and events come before and after it.
TEST(SharedConnection, AnswersMayBeLarge) {
  ServerOptions options{.limits = WithoutHeartbeats()};
  options.limits.stream_bytes = 100'000;
  SharedServer server(options);
  RawClient client = Opened(server);
  client.Send(Post("/large", ""));
  for (int i = 0; i < 20; ++i) server.Broadcast("beside");
  std::string text = client.ReadUntil("HTTP/1.1 200 ");
  text += client.ReadUntil(std::string(5'000'000, 'x'));
  EXPECT_GT(text.size(), 5'000'000U);
  server.Broadcast("last");
  client.ReadUntil("data: last\n\n");
}

TEST(SharedConnection, IsNotIdle) {
  ServerOptions options;
  options.limits.idle_time = milliseconds(20);
  options.limits.stream_beat = milliseconds(10);
  SharedServer server(options);
  RawClient client = Opened(server);
  for (int i = 0; i < 10; ++i) EXPECT_THAT(client.ReadUntil(": \n\n"), HasSubstr(": \n\n"));
  client.Send(Post("/echo", "still here"));
  EXPECT_THAT(client.ReadUntil("still here"), HasSubstr("HTTP/1.1 200 "));
}

TEST(SharedConnection, HasTheLimitsOfRequests) {
  ServerOptions options{.limits = WithoutHeartbeats()};
  options.limits.requests_per_second = 0.001;
  SharedServer few(options);
  {
    RawClient client = Opened(few);  // The first request is more than this address may send.
    for (int i = 0; i < 3; ++i) {
      client.Send(Post("/echo", "a"));
      EXPECT_THAT(client.ReadResponse(),
                  AllOf(StartsWith("HTTP/1.1 429 "), HasSubstr("\r\nRetry-After: "),
                        Not(HasSubstr("Connection: close"))));
    }
    few.Broadcast("still here");
    client.ReadUntil("data: still here\n\n");
  }
  options.limits = WithoutHeartbeats();
  options.limits.request_time = milliseconds(50);
  SharedServer server(options);
  for (const auto& [rest, answer] :
       {std::pair{"", "HTTP/1.1 408 "},
        {"Host: a\r\nContent-Length: 9999999\r\n\r\n", "HTTP/1.1 413 "}}) {
    RawClient client = Opened(server);
    client.Send(std::string("POST /echo HTTP/1.1\r\n") + rest);
    EXPECT_THAT(client.ReadAll(),
                AllOf(StartsWith(answer), HasSubstr("\r\nConnection: close\r\n")));
    EXPECT_TRUE(HasNoConnection(server));
  }
  RawClient client = Opened(server);
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: text/csv\r\nContent-Length: 1\r\n\r\na");
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 415 "));
  client.Send(Post("/echo", "b"));
  EXPECT_THAT(client.ReadResponse(), HasSubstr("\r\n\r\nb"));
}

TEST(SharedConnection, EndsWithItsStreamAfterTheAnswer) {
  SharedServer server({.limits = WithoutHeartbeats()});
  RawClient client = Opened(server);
  client.Send(Post("/slow", ""));
  ASSERT_TRUE(server.server().Until([&](const auto&) { return server.asked() == 1; }));
  server.WithEach([](Stream& stream) { stream.Close(); });
  server.Broadcast("too late");
  server.Finish();
  EXPECT_THAT(client.ReadResponse(), HasSubstr("slow"));
  EXPECT_TRUE(client.IsClosedByServer());
  EXPECT_TRUE(HasNoConnection(server));
  RawClient idle = Opened(server);
  server.WithEach([](Stream& stream) { stream.Close(); });
  EXPECT_TRUE(idle.IsClosedByServer());
}

TEST(SharedConnection, EndsIfTheClientIsGone) {
  SharedServer server({.limits = WithoutHeartbeats()});
  { RawClient client = Opened(server); }
  EXPECT_TRUE(HasNoConnection(server));
  {
    RawClient client = Opened(server);
    client.Send(Post("/slow", ""));
    ASSERT_TRUE(server.server().Until([&](const auto&) { return server.asked() == 1; }));
  }
  server.Finish();
  EXPECT_TRUE(HasNoConnection(server));
  RawClient client = Opened(server);
  client.Send("nonsense\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 400 "));
  EXPECT_TRUE(HasNoConnection(server));
}

TEST(SharedConnection, StopsWithTheServer) {
  SharedServer server({.limits = WithoutHeartbeats()});
  RawClient idle = Opened(server);
  RawClient busy = Opened(server);
  busy.Send(Post("/slow", ""));
  ASSERT_TRUE(server.server().Until([&](const auto&) { return server.asked() == 1; }));
  server.server().OnLoop([&] {
    server.server().server().Stop(std::chrono::minutes(1));
    return 0;
  });
  EXPECT_TRUE(idle.IsClosedByServer());
  server.Finish();
  EXPECT_THAT(busy.ReadResponse(), HasSubstr("slow"));
  EXPECT_TRUE(busy.IsClosedByServer());
}

// The client, with Listen on a thread of its own.
class Listener {
 public:
  explicit Listener(ClientOptions options) : client_(Made(std::move(options))) {
    thread_ = std::thread([this] {
      Client::Listening listening;
      listening.target = "/events";
      listening.with_requests = true;
      listening.on_event = [this](const Event& event) {
        const std::lock_guard lock(mutex_);
        events_.push_back(event.data);
        return true;
      };
      listening.on_change = [this](std::string_view what) {
        const std::lock_guard lock(mutex_);
        changes_.emplace_back(what);
      };
      listening.should_end = [this] { return is_over_.load(); };
      EXPECT_TRUE(client_.Listen(listening));
    });
  }
  ~Listener() {
    is_over_ = true;
    thread_.join();
  }

  std::optional<Result<Response>> Ask(const std::string& target, const std::string& body,
                                      milliseconds timeout = milliseconds(20'000)) {
    return client_.SendBesideEvents({.method = "POST", .target = target, .body = body}, timeout);
  }
  // The same, once the stream is open.
  Result<Response> MustAsk(const std::string& target, const std::string& body) {
    while (true) {
      if (auto answer = Ask(target, body)) return *std::move(answer);
      std::this_thread::yield();
    }
  }
  bool Has(const std::function<bool(const std::vector<std::string>& events,
                                    const std::vector<std::string>& changes)>& condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < until) {
      {
        const std::lock_guard lock(mutex_);
        if (condition(events_, changes_)) return true;
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
    return false;
  }
  bool WasLost(std::string_view why) {
    return Has([&](const auto&, const auto& changes) {
      return std::ranges::any_of(changes, [&](const std::string& change) {
        return change.find(why) != std::string::npos;
      });
    });
  }

 private:
  static Client Made(ClientOptions options) {
    auto client = Client::Create(std::move(options));
    if (!client) throw std::runtime_error(client.error().message);
    return *std::move(client);
  }

  Client client_;
  std::atomic<bool> is_over_ = false;
  std::mutex mutex_;  // Guards the members below.
  std::vector<std::string> events_;
  std::vector<std::string> changes_;
  std::thread thread_;
};

void AskAndListen(SharedServer& server, Listener& listener) {
  for (int i = 0; i < 300; ++i) {
    server.Broadcast(std::to_string(i));
    const auto answer = listener.MustAsk("/echo", fmt::format("HTTP/1.1 \n\n{}", i));
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->body, fmt::format("HTTP/1.1 \n\n{}", i));
  }
  const auto large = listener.MustAsk("/large", "");
  ASSERT_TRUE(large);
  EXPECT_EQ(large->body.size(), 5'000'000U);
  server.Broadcast("last");
  EXPECT_TRUE(listener.Has(
      [](const auto& events, const auto&) { return !events.empty() && events.back() == "last"; }));
  EXPECT_EQ(server.server().Counts().connections, 1);
  EXPECT_EQ(server.server().Counts().streams, 1);
}

TEST(SharedConnection, OfAClientThatAsksOnAnotherThread) {
  SharedServer server;
  Listener listener({.server = server.server().Url()});
  AskAndListen(server, listener);
  // A revoked token, for example: the client connects again.
  server.WithEach([](Stream& stream) { stream.Close(); });
  ASSERT_TRUE(listener.WasLost("it ended the stream"));
  EXPECT_TRUE(listener.MustAsk("/echo", "again"));
}

TEST(SharedConnection, OverTls) {
  const TemporaryDirectory directory;
  TestAuthority authority(directory.path(), "authority");
  const auto files = authority.Issue("server", "server", "IP:127.0.0.1");
  ServerOptions options;
  options.tls = TlsFiles{files.certificate, files.key};
  SharedServer server(options);
  Listener listener({.server = "https://127.0.0.1:" + std::to_string(server.server().port()),
                     .authority = authority.file()});
  AskAndListen(server, listener);
}

TEST(SharedConnection, AServerWithoutItIsLeftAlone) {
  // As a server of an earlier version, or behind a proxy that removes the upgrade.
  Router router;
  std::shared_ptr<Stream> stream;
  router.Add("GET", "/events", [&](Call& call) -> asio::awaitable<Response> {
    call.request.fields.erase("upgrade");
    stream = *call.open_stream();
    stream->Send(std::make_shared<const std::string>("data: old\n\n"));
    co_return Response();
  });
  TestServer server(std::move(router));
  {
    Listener listener({.server = server.Url()});
    EXPECT_TRUE(listener.Has([](const auto& events, const auto&) { return events.size() == 1; }));
    EXPECT_FALSE(listener.Ask("/echo", ""));
  }
  server.OnLoop([&] {
    stream.reset();
    return 0;
  });
}

TEST(SharedConnection, ARequestWithoutAnAnswerEndsIt) {
  SharedServer server;
  Listener listener({.server = server.server().Url()});
  ASSERT_TRUE(listener.MustAsk("/echo", ""));
  const auto late = listener.Ask("/slow", "", milliseconds(50));
  ASSERT_TRUE(late && !*late);
  EXPECT_THAT(late->error().message, HasSubstr("timed out (it may have processed the request)"));
  EXPECT_EQ(late->error().kind, ErrorKind::kSystem);
  ASSERT_TRUE(listener.WasLost("a request got no answer"));
  // The late answer belongs to no other request.
  server.Finish();
  const auto next = listener.MustAsk("/echo", "next");
  ASSERT_TRUE(next);
  EXPECT_EQ(next->body, "next");
}

// Bytes that a server sends after 101, and what the client takes from them.
TEST(ClientStream, TakesEventsInPieces) {
  const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nH\n\nHTTP/1";
  const std::string input = ": \n\nid: HTTP/1.1 \ndata: x\n\n: \n\n";
  for (std::size_t cut = 0; cut <= input.size(); ++cut) {
    ClientStream stream(100);
    std::string events;
    for (const std::string& piece : {input.substr(0, cut), input.substr(cut)}) {
      const auto taken = stream.Put(piece);
      ASSERT_TRUE(taken);
      events += *taken;
    }
    EXPECT_EQ(events, input);
    EXPECT_FALSE(stream.Put(answer)) << "nobody has asked";
  }
  ClientStream stream(100);
  EXPECT_FALSE(stream.Put("HTTP/1.1 nonsense\r\n\r\n"));
}

TEST(ClientStream, TakesAnswersInPieces) {
  SharedServer server;
  const ServerUrl url = ParseServerUrls(server.server().Url())->front();
  const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  auto connection = ClientConnection::Open(url, nullptr, {soon, nullptr});
  ASSERT_TRUE(connection);
  ClientStream stream(100);
  stream.Begin(*connection, url);
  const std::string input =
      "data: x\n\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nH\n\nHTTP/1data: y\n\n";
  for (std::size_t piece = 1; piece <= input.size(); ++piece) {
    const int before = server.asked();
    auto answer = std::async(std::launch::async, [&] {
      return stream.Send([](const ServerUrl&) { return Post("/echo", ""); },
                         std::chrono::seconds(20));
    });
    ASSERT_TRUE(server.server().Until([&](const auto&) { return server.asked() > before; }));
    std::string events;
    for (std::size_t at = 0; at < input.size(); at += piece) {
      const auto taken = stream.Put(input.substr(at, piece));
      ASSERT_TRUE(taken) << taken.error().message;
      events += *taken;
    }
    EXPECT_EQ(events, "data: x\n\ndata: y\n\n");
    const auto received = answer.get();
    ASSERT_TRUE(received && *received);
    EXPECT_EQ((*received)->body, "H\n\nHTTP/1");
  }
  stream.End();
}

}  // namespace
}  // namespace perseus::http
