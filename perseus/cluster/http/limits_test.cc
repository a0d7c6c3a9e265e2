// Tests each field of Limits, which bound what a client can do to a server.
#include <gmock/gmock.h>

#include "tests/support/test_server.h"

namespace perseus::http {
namespace {

using std::chrono::milliseconds;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kChunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
constexpr char kGet[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

class LimitedServer : public TestServer {
 public:
  explicit LimitedServer(Limits limits) : TestServer(Routes(), {.limits = limits}) {}

 private:
  static Router Routes() {
    Router router;
    const Handler answer = [](Call& call) -> asio::awaitable<Response> {
      Response response;
      response.body = std::to_string(call.request.body.size());
      co_return response;
    };
    router.Add("GET", "/", answer);
    router.Add("POST", "/", answer, {.body_bytes = 10'000'000});
    router.Add("POST", "/few", answer, {.body_bytes = 100});
    router.Add("GET", "/large", [](Call&) -> asio::awaitable<Response> {
      Response response;
      response.body = std::string(100'000'000, 'x');
      co_return response;
    });
    return router;
  }
};

std::string Post(std::size_t length, const std::string& fields = "") {
  return "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(length) + "\r\n" +
         fields + "\r\n";
}

TEST(Limits, BoundTheHeader) {
  LimitedServer server({.header_bytes = 1000});
  const std::string start = "GET / HTTP/1.1\r\nHost: a\r\n";
  EXPECT_THAT(ResponseTo(server, start + "a: " + std::string(900, 'x') + "\r\n\r\n"),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(AllFor(server, start + "a: " + std::string(5000, 'x')), StartsWith("HTTP/1.1 431"));
  RawClient many(server.port());
  std::string fields;
  for (int i = 0; i < 200; ++i) fields += "a: b\r\n";
  many.Send(start + fields + "\r\n");
  EXPECT_THAT(many.ReadAll(), StartsWith("HTTP/1.1 431"));
  // Send field by field, so that the server parses each one before the next one arrives.
  RawClient dripping(server.port());
  dripping.Send(start);
  for (int i = 0; i < 200; ++i) {
    dripping.Send("a: b\r\n");
    server.Counts();  // Waits for a turn of the loop.
  }
  EXPECT_THAT(dripping.ReadAll(), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(AllFor(server, "GET /" + std::string(5000, 'x')), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(AllFor(server, kChunked + "0\r\na: " + std::string(5000, 'x')),
              StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(AllFor(server, kChunked + "1;" + std::string(5000, 'x')), StartsWith("HTTP/1.1 431"));
}

TEST(Limits, BoundTheBody) {
  LimitedServer server({.body_bytes = 1000});
  EXPECT_THAT(ResponseTo(server, Post(1000) + std::string(1000, 'x')), HasSubstr("\r\n\r\n1000"));
  // The server refuses the announced length, before the body is sent.
  EXPECT_THAT(AllFor(server, Post(1001, "Expect: 100-continue\r\n")), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(AllFor(server, kChunked + "1f4\r\n" + std::string(500, 'x') + "\r\n1f5\r\n"),
              StartsWith("HTTP/1.1 413"));
  // A client that sends the whole body first still receives the answer.
  EXPECT_THAT(AllFor(server, Post(3'000'000) + std::string(3'000'000, 'x')),
              StartsWith("HTTP/1.1 413"));
}

TEST(Limits, BoundTheBodyOfARoute) {
  LimitedServer server({});
  const auto post = [](const std::string& path, std::size_t length) {
    return "POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(length) +
           "\r\n\r\n";
  };
  EXPECT_THAT(ResponseTo(server, post("/few", 100) + std::string(100, 'x')),
              HasSubstr("\r\n\r\n100"));
  // The server answers without any byte of the body.
  RawClient announced(server.port());
  const std::string refused = announced.Ask(post("/few", 101));
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(refused, HasSubstr("more than 100 bytes"));
  EXPECT_THAT(
      ResponseTo(server,
                 "POST /few HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n65\r\nx"),
      StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(ResponseTo(server, post("/nowhere", 1'000'000)), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(ResponseTo(server, post("/", 10'000'001)), HasSubstr("more than 10000000 bytes"));
}

TEST(Limits, BoundAllBodiesTogether) {
  LimitedServer server({.all_bodies_bytes = 1500});
  RawClient first(server.port());
  first.Send(Post(1000) + std::string(999, 'x'));
  // Repeat until the server has received the first body, and so refuses the second one.
  RawClient second(server.port());
  std::string refused;
  while (refused.empty()) {
    const std::string response = second.Ask(Post(600) + std::string(600, 'x'));
    if (response.starts_with("HTTP/1.1 503")) refused = response;
  }
  EXPECT_THAT(refused, HasSubstr("Retry-After: "));
  EXPECT_THAT(first.Ask("x"), HasSubstr("\r\n\r\n1000"));
  EXPECT_THAT(ResponseTo(server, Post(600) + std::string(600, 'x')), HasSubstr("\r\n\r\n600"));
}

// A client cannot extend the time by sending a byte now and then.
TEST(Limits, BoundTheTimeOfARequest) {
  LimitedServer server({.request_time = milliseconds(100)});
  for (const std::string& request : {"GET / HTTP/1.1\r\nHost: a\r\nx: " + std::string(1000, 'x'),
                                     Post(1000) + std::string(1000, 'x')}) {
    RawClient client(server.port());
    bool is_answered = false;
    for (const char byte : request) {
      client.Send(std::string(1, byte));
      pollfd polled{client.fd(), POLLIN, 0};
      if (::poll(&polled, 1, 5) > 0) {
        is_answered = true;
        break;
      }
    }
    EXPECT_TRUE(is_answered);
    EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 408"));
  }
}

TEST(Limits, BoundTheTimeWithoutARequest) {
  Limits limits{.idle_time = milliseconds(50)};
  LimitedServer server(limits);
  RawClient silent(server.port());
  EXPECT_TRUE(silent.IsClosedByServer());
  // On a busy machine, a request may arrive after a short idle time.
  std::string response;
  while (response.empty() && limits.idle_time < std::chrono::seconds(20)) {
    LimitedServer answering(limits);
    RawClient once(answering.port());
    once.Send(kGet);
    response = once.ReadResponse();
    EXPECT_TRUE(once.IsClosedByServer());
    limits.idle_time *= 4;
  }
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200"));
}

TEST(Limits, BoundTheTimeToReceiveAnAnswer) {
  LimitedServer server({.request_time = milliseconds(100)});
  RawClient client(server.port());
  EXPECT_TRUE(server.Until([](const auto& counts) { return counts.connections == 1; }));
  client.Send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(server.Until([](const auto& counts) { return counts.connections == 0; }));
}

TEST(Limits, BoundTheConnections) {
  LimitedServer server({.connections = 2});
  auto first = std::make_unique<RawClient>(server.port());
  RawClient second(server.port());
  EXPECT_THAT(second.Ask(kGet), StartsWith("HTTP/1.1 200"));
  RawClient third(server.port());
  third.Send(kGet);
  const std::string refused = third.ReadAll();
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(refused, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_EQ(server.Counts().refused, 1);
  first.reset();
  EXPECT_TRUE(server.Until([](const auto& counts) { return counts.connections == 1; }));
  EXPECT_THAT(ResponseTo(server, kGet), StartsWith("HTTP/1.1 200"));
}

TEST(Limits, BoundTheRequestsPerSecond) {
  LimitedServer server({.requests_per_second = 0.001});
  RawClient client(server.port());
  EXPECT_THAT(client.Ask(std::string(kGet) + kGet), StartsWith("HTTP/1.1 200"));
  const std::string refused = client.ReadResponse();
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 429"));
  // 1,000 s, less the time between the two requests.
  EXPECT_THAT(refused, ContainsRegex("Retry-After: (1000|9[0-9][0-9])\r\n"));
  // The server does not read the body of a refused request.
  client.Send(Post(1'000'000));
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 429"));
}

}  // namespace
}  // namespace perseus::http
