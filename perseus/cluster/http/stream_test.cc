// Tests the server side of event streams.
#include <gmock/gmock.h>

#include <atomic>

#include "perseus/cluster/http/client.h"
#include "tests/support/test_server.h"

namespace perseus::http {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::StartsWith;

std::shared_ptr<const std::string> Text(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
}

// GET /events opens a stream. This class keeps all streams.
class Streams {
 public:
  explicit Streams(Limits limits = WithoutHeartbeats()) : server_(Routes(), {.limits = limits}) {}
  ~Streams() {
    server_.OnLoop([this] { open_.clear(); });
  }

  void Broadcast(const std::shared_ptr<const std::string>& text) {
    server_.OnLoop([&] {
      for (const auto& stream : open_) stream->Send(text);
    });
  }
  template <typename Work>
  void WithEach(Work work) {
    server_.OnLoop([&] {
      for (const auto& stream : open_) work(*stream);
    });
  }
  // Returns after the head of the response has arrived.
  RawClient Open(const std::string& method = "GET") {
    RawClient client(server_.port());
    client.Send(method + " /events HTTP/1.1\r\nHost: a\r\nLast-Event-ID: 7\r\n\r\n");
    head_ = client.ReadUntil("\r\n\r\n");
    return client;
  }

  TestServer& server() { return server_; }
  const std::string& head() const { return head_; }
  int closed() const { return closed_; }

 private:
  Router Routes() {
    Router router;
    router.Add("GET", "/events", [this](const Call& call) -> asio::awaitable<Response> {
      auto stream = call.open_stream();
      if (!stream) co_return ProblemResponse({503, "Too many", stream.error().Message()});
      EXPECT_FALSE(call.open_stream());
      (*stream)->OnClose([this] { ++closed_; });
      (*stream)->Send(Text("id: " + std::string(call.request.Field("last-event-id")) + "\n\n"));
      open_.push_back(*std::move(stream));
      co_return Response();
    });
    return router;
  }

  std::vector<std::shared_ptr<Stream>> open_;
  std::atomic<int> closed_ = 0;
  std::string head_;
  TestServer server_;
};

TEST(Streams, SendTextsInOrder) {
  Streams streams;
  RawClient client = streams.Open();
  EXPECT_THAT(streams.head(), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(streams.head(), HasSubstr("Content-Type: text/event-stream\r\n"));
  EXPECT_EQ(client.ReadUntil("\n\n"), "id: 7\n\n");
  std::string sent;
  for (int i = 0; i < 3000; ++i) {
    const std::string text = fmt::format("id: {}\ndata: x\n\n", i);
    streams.Broadcast(Text(text));
    sent += text;
  }
  EXPECT_EQ(client.ReadUntil("id: 2999\ndata: x\n\n"), sent);
}

TEST(Streams, ReachAllClients) {
  Streams streams;
  std::vector<RawClient> clients;
  for (int i = 0; i < 500; ++i) clients.push_back(streams.Open());
  EXPECT_EQ(streams.server().Counts().streams, 500);
  const auto text = Text("event: assignment\nid: 1\ndata: " + std::string(2000, 'x') + "\n\n");
  streams.Broadcast(text);
  for (RawClient& client : clients) {
    EXPECT_EQ(client.ReadUntil("\n\n"), "id: 7\n\n");
    EXPECT_EQ(client.ReadUntil("\n\n"), *text);
  }
  clients.clear();
  EXPECT_TRUE(streams.server().Until([](const auto& counts) { return counts.streams == 0; }));
  EXPECT_TRUE(streams.server().Until([](const auto& counts) { return counts.connections == 0; }));
  EXPECT_EQ(streams.closed(), 500);
}

TEST(Streams, ReportADisconnectedClient) {
  Streams streams;
  { const RawClient client = streams.Open(); }
  EXPECT_TRUE(streams.server().Until([](const auto& counts) { return counts.streams == 0; }));
  streams.Broadcast(Text("data: no client receives this\n\n"));
  streams.WithEach([](Stream& stream) {
    EXPECT_FALSE(stream.IsOpen());
    stream.Close();
  });
  EXPECT_EQ(streams.closed(), 1);
  // A callback that is set after the end is called, too.
  std::atomic<bool> is_called = false;
  streams.WithEach([&](Stream& stream) { stream.OnClose([&] { is_called = true; }); });
  EXPECT_TRUE(streams.server().Until([&](const auto&) { return is_called.load(); }));
}

TEST(Streams, SendEarlierTextsBeforeTheyClose) {
  Streams streams;
  RawClient client = streams.Open();
  streams.WithEach([](Stream& stream) {
    stream.Send(Text("data: last\n\n"));
    stream.Close();
    EXPECT_FALSE(stream.IsOpen());
    stream.Send(Text("data: too late\n\n"));
  });
  EXPECT_EQ(client.ReadAll(), "id: 7\n\ndata: last\n\n");
  EXPECT_TRUE(streams.server().Until([](const auto& counts) { return counts.streams == 0; }));
  EXPECT_EQ(streams.closed(), 1);
}

TEST(Streams, DropAClientThatDoesNotRead) {
  Streams streams({.stream_beat = std::chrono::hours(1), .stream_bytes = 100'000});
  RawClient slow = streams.Open();
  RawClient other = streams.Open();
  const auto text = Text("data: " + std::string(50'000, 'x') + "\n\n");
  std::int64_t dropped = 0;
  for (int i = 0; i < 10'000 && dropped == 0; ++i) {
    streams.Broadcast(text);
    other.ReadUntil(*text);
    dropped = streams.server().Counts().dropped_streams;
  }
  EXPECT_EQ(dropped, 1);
  EXPECT_TRUE(streams.server().Until([](const auto& counts) { return counts.streams == 1; }));
  streams.Broadcast(Text("data: on\n\n"));
  EXPECT_THAT(other.ReadUntil("data: on\n\n"), HasSubstr("data: on\n\n"));
  EXPECT_EQ(streams.closed(), 1);
}

TEST(Streams, DropAClientThatReadsNothingBetweenTwoHeartbeats) {
  Streams streams({.stream_beat = milliseconds(50), .stream_bytes = 100'000'000});
  const RawClient slow = streams.Open();
  streams.Broadcast(Text(std::string(50'000'000, 'x')));
  EXPECT_TRUE(streams.server().Until([](const auto& counts) { return counts.streams == 0; }));
  EXPECT_EQ(streams.server().Counts().dropped_streams, 1);
}

TEST(Streams, SendHeartbeatsWhileIdle) {
  Streams streams({.stream_beat = milliseconds(20)});
  RawClient client = streams.Open();
  for (int i = 0; i < 3; ++i) EXPECT_THAT(client.ReadUntil(": \n\n"), HasSubstr(": \n\n"));
}

// The client tolerates one late heartbeat, and still notices soon that a server disappeared.
TEST(Streams, CountAsLostAfterTwoHeartbeats) {
  const auto silence = Client::Listening().silence;
  EXPECT_GT(silence, 2 * Limits().stream_beat);
  EXPECT_LE(silence, std::chrono::seconds(15));
}

TEST(Streams, AreLimitedInNumber) {
  Streams streams({.streams = 1});
  RawClient first = streams.Open();
  RawClient second = streams.Open();
  EXPECT_THAT(streams.head(), StartsWith("HTTP/1.1 503 "));
}

// Some nodes of earlier versions request an upgrade of the protocol. They also accept a plain
// stream.
TEST(Streams, IgnoreAnUpgrade) {
  Streams streams;
  RawClient client(streams.server().port());
  client.Send(
      "GET /events HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: perseus-node\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), StartsWith("HTTP/1.1 200 OK\r\n"));
  streams.Broadcast(Text("data: on\n\n"));
  EXPECT_THAT(client.ReadUntil("data: on\n\n"), HasSubstr("data: on\n\n"));
}

TEST(Streams, EndAtOnceForHead) {
  Streams streams;
  RawClient client = streams.Open("HEAD");
  EXPECT_THAT(streams.head(), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(client.ReadAll(), "");
}

TEST(Streams, EndWithTheServer) {
  Streams streams;
  RawClient client = streams.Open();
  streams.server().OnLoop([&] { streams.server().server().Stop(std::chrono::minutes(1)); });
  EXPECT_EQ(client.ReadAll(), "id: 7\n\n");
  EXPECT_TRUE(streams.server().Until([&](const auto&) { return streams.closed() == 1; }));
}

}  // namespace
}  // namespace perseus::http
