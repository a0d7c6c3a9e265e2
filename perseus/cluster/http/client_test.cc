#include "perseus/cluster/http/client.h"

#include <gmock/gmock.h>

#include <atomic>

#include "tests/support/test_server.h"

namespace perseus::http {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// A socket that listens but does not accept. Connections stay in the queue of the kernel.
class SilentServer {
 public:
  SilentServer() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    ::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size);
    ::listen(socket_.get(), 8);
    ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  int fd() const { return socket_.get(); }
  std::string Url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  FileDescriptor socket_;
  int port_ = 0;
};

// A server that sends one given text on each connection, and then closes the connection.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::vector<std::string> answers)
      : thread_([this, script = std::move(answers)] { Run(script); }) {}
  ~ScriptedServer() {
    ::shutdown(socket_.fd(), SHUT_RDWR);
    thread_.join();
  }

  std::string Url() const { return socket_.Url(); }
  int requests() const { return count_; }
  std::string last_request() const { return requests_.back(); }

 private:
  void Run(const std::vector<std::string>& script) {
    for (const std::string& answer : script) {
      const FileDescriptor peer(::accept(socket_.fd(), nullptr, nullptr));
      if (!peer) return;
      std::string request;
      char bytes[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t received = ::recv(peer.get(), bytes, sizeof(bytes), 0);
        if (received <= 0) break;
        request.append(bytes, static_cast<std::size_t>(received));
      }
      requests_.push_back(request);
      ++count_;
      ::send(peer.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    }
  }

  SilentServer socket_;
  std::atomic<int> count_ = 0;
  std::vector<std::string> requests_;
  std::thread thread_;
};

// Returns a URL at which no server listens: its port was free just now.
std::string UnusedUrl() {
  const ScriptedServer gone({});
  return gone.Url();
}

Client Make(const std::string& server, milliseconds timeout = milliseconds(10'000)) {
  auto client = Client::Create({.server = server, .token = "secret", .timeout = timeout});
  if (!client) throw std::runtime_error(client.error().Message());
  return *std::move(client);
}

const std::string kOk = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const std::string kStream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";

Router ClientRoutes() {
  Router router;
  const Handler echo = [](Call& call) -> asio::awaitable<Response> {
    Response response;
    response.body = call.request.method + " " + call.request.body + " " +
                    std::string(call.request.Field("authorization"));
    co_return response;
  };
  router.Add("GET", "/echo", echo);
  router.Add("POST", "/echo", echo);
  for (const int status : {400, 404, 409, 429, 500}) {
    router.Add("GET", "/" + std::to_string(status), [status](Call&) -> asio::awaitable<Response> {
      co_return ProblemResponse(
          {status, "Bad", "\"zigzag\" is not a schedule", "/kind", "choose 1f1b"});
    });
  }
  return router;
}

TEST(Client, KeepsItsConnection) {
  TestServer server(ClientRoutes());
  Client client = Make(server.Url());
  for (int i = 0; i < 3; ++i) {
    const auto body = client.Fetch({.method = "POST", .target = "/echo", .body = "hello"});
    ASSERT_TRUE(body) << body.error().Message();
    EXPECT_EQ(*body, "POST hello Bearer secret");
    EXPECT_EQ(server.Counts().connections, 1);
  }
  const auto head = client.Send({.method = "HEAD", .target = "/echo"});
  ASSERT_TRUE(head);
  EXPECT_EQ(head->body, "");
  const auto body = client.Fetch({.target = "/echo"});
  ASSERT_TRUE(body);
  EXPECT_EQ(*body, "GET  Bearer secret");
}

// Sends three requests, and waits before each next one until the server has closed the connection.
Result<void> SendAfterEachClose(milliseconds idle_time) {
  TestServer server(ClientRoutes(), {.limits = {.idle_time = idle_time}});
  Client client = Make(server.Url());
  for (int i = 0; i < 3; ++i) {
    PERSEUS_RETURN_IF_ERROR(client.Fetch({.method = "POST", .target = "/echo"}));
    EXPECT_TRUE(server.Until([](const auto& counts) { return counts.connections == 0; }));
  }
  return {};
}

TEST(Client, ConnectsAgainAfterTheServerCloses) {
  // On a busy machine, a short idle time may end before the request arrives.
  Result<void> sent = SendAfterEachClose(milliseconds(30));
  for (const int idle_ms : {300, 3000}) {
    if (!sent) sent = SendAfterEachClose(milliseconds(idle_ms));
  }
  EXPECT_TRUE(sent) << sent.error().Message();
}

TEST(Client, ReportsProblemDocuments) {
  TestServer server(ClientRoutes());
  Client client = Make(server.Url());
  const std::string message = "/kind: \"zigzag\" is not a schedule (choose 1f1b";
  const std::pair<const char*, ErrorKind> rows[] = {{"/400", ErrorKind::kInput},
                                                    {"/404", ErrorKind::kInput},
                                                    {"/409", ErrorKind::kUnreachable},
                                                    {"/429", ErrorKind::kSystem},
                                                    {"/500", ErrorKind::kSystem}};
  for (const auto& [target, kind] : rows) {
    const auto body = client.Fetch({.target = target});
    ASSERT_FALSE(body);
    // With the trace id, the user finds the failure in the log of the server.
    const char* const end = std::string_view(target) == "/500" ? "; trace " : ")";
    EXPECT_THAT(body.error().Message(), StartsWith(message + end));
    EXPECT_EQ(body.error().kind, kind);
  }
  ScriptedServer other({"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"});
  EXPECT_EQ(Make(other.Url()).Fetch({.target = "/"}).error().Message(),
            "the server answered with status 502 (try again; if it fails again, see the log of the "
            "server)");
}

TEST(Client, TriesServersInTurn) {
  TestServer server(ClientRoutes());
  const std::string unused = UnusedUrl();
  Client client = Make(unused + "," + server.Url());
  const auto body = client.Fetch({.method = "POST", .target = "/echo", .body = "x"});
  ASSERT_TRUE(body) << body.error().Message();
  Client lost = Make(unused + "," + unused);
  const auto failed = lost.Fetch({.target = "/echo"});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind, ErrorKind::kSystem);
  EXPECT_THAT(failed.error().Message(), HasSubstr(unused + ": Connection refused; " + unused));
}

TEST(Client, RepeatsOnlyIdempotentMethods) {
  for (const char* method : {"GET", "HEAD", "PUT", "DELETE"}) {
    ScriptedServer closes({""});
    ScriptedServer answers({kOk});
    EXPECT_TRUE(Make(closes.Url() + "," + answers.Url()).Send({.method = method, .target = "/"}))
        << method;
  }
  ScriptedServer closes({""});
  ScriptedServer answers({kOk});
  Client client = Make(closes.Url() + "," + answers.Url());
  const auto response = client.Send({.method = "POST", .target = "/"});
  ASSERT_FALSE(response);
  EXPECT_THAT(response.error().Message(), HasSubstr("it may have processed the request"));
  EXPECT_EQ(answers.requests(), 0);
}

TEST(Client, RefusesIncompleteAnswers) {
  for (const char* answer :
       {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", "HTTP/1.1 200 OK\r\nConte",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", "nonsense\r\n\r\n"}) {
    ScriptedServer server({answer});
    const auto response = Make(server.Url()).Send({.target = "/"});
    ASSERT_FALSE(response) << answer;
    EXPECT_EQ(response.error().kind, ErrorKind::kSystem);
  }
}

TEST(Client, ReadsAllFormsOfAnswers) {
  for (const char* answer :
       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\n\r\nok", "HTTP/1.0 200 OK\r\n\r\nok"}) {
    ScriptedServer server({answer});
    const auto body = Make(server.Url()).Fetch({.target = "/"});
    ASSERT_TRUE(body) << answer << ": " << body.error().Message();
    EXPECT_EQ(*body, "ok");
  }
}

TEST(Client, StopsAtItsTimeout) {
  const SilentServer silent;
  const auto response = Make(silent.Url(), milliseconds(50)).Send({.target = "/"});
  ASSERT_FALSE(response);
  EXPECT_THAT(response.error().Message(), HasSubstr("timed out"));
}

TEST(Client, RefusesInvalidOptionsAndTargets) {
  for (const ClientOptions& options :
       {ClientOptions{.server = "perseus"}, ClientOptions{.token = "a\r\nb"},
        ClientOptions{.server = "https://a", .authority = "/nowhere.pem"}}) {
    const auto client = Client::Create(options);
    ASSERT_FALSE(client);
    EXPECT_EQ(client.error().kind, ErrorKind::kInput);
  }
  Client client = Make(UnusedUrl());
  for (const char* target : {"", "a", "/a b", "/a\r\nb"}) {
    const auto response = client.Send({.target = target});
    ASSERT_FALSE(response);
    EXPECT_EQ(response.error().kind, ErrorKind::kInput) << target;
  }
}

struct Received {
  std::vector<std::string> events;  // "name id data"
  std::vector<std::string> changes;
  Result<void> result;
};

// Receives up to `most` events.
Received Receive(Client& client, std::size_t most, std::string last_id = "",
                 milliseconds silence = milliseconds(10'000)) {
  Received received;
  received.result = client.Listen(
      {.target = "/events",
       .last_event_id = std::move(last_id),
       .silence = silence,
       .on_event =
           [&](const Event& event) {
             received.events.push_back(event.name + " " + event.id + " " + event.data);
             return received.events.size() < most;
           },
       .on_change = [&](std::string_view change) { received.changes.emplace_back(change); }});
  return received;
}

TEST(Listen, ContinuesWithAnotherServerAfterTheLastEvent) {
  ScriptedServer first({kStream + "event: a\nid: 1\ndata: x\n\nid: 2\ndata: y\n\ndata: half"});
  ScriptedServer second(
      {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
       "5\r\n: \n\nd\r\n8\r\nata: z\n\n\r\n"});
  Client client = Make(first.Url() + "," + second.Url());
  const Received received = Receive(client, 3, "0");
  ASSERT_TRUE(received.result) << received.result.error().Message();
  EXPECT_THAT(received.events, ElementsAre("a 1 x", " 2 y", "  z"));
  EXPECT_THAT(first.last_request(), HasSubstr("\r\nLast-Event-ID: 0\r\n"));
  EXPECT_THAT(second.last_request(), HasSubstr("\r\nLast-Event-ID: 2\r\n"));
  EXPECT_THAT(second.last_request(), HasSubstr("\r\nAccept: text/event-stream\r\n"));
  EXPECT_THAT(received.changes,
              ElementsAre("connected to " + first.Url(),
                          "lost " + first.Url() + ": it ended the stream; trying again",
                          "connected to " + second.Url()));
}

TEST(Listen, SendsTheCurrentPositionWithEachConnection) {
  ScriptedServer first({kStream + "id: 1\ndata: x\n\n"});
  ScriptedServer second({kStream + "data: y\n\n"});
  Client client = Make(first.Url() + "," + second.Url());
  std::vector<std::string> positions{"b", "a"};
  const auto listened =
      client.Listen({.target = "/events",
                     .position =
                         [&] {
                           const std::string id = positions.back();
                           positions.pop_back();
                           return id;
                         },
                     .on_event = [](const Event& event) { return event.data != "y"; }});
  EXPECT_TRUE(listened);
  EXPECT_THAT(first.last_request(), HasSubstr("\r\nLast-Event-ID: a\r\n"));
  EXPECT_THAT(second.last_request(), HasSubstr("\r\nLast-Event-ID: b\r\n"));
}

TEST(Listen, TriesAgainAndSaysEachReasonOnce) {
  const std::string busy = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
  ScriptedServer server({busy, busy, "", busy, kStream + "data: x\n\n"});
  Client client = Make(server.Url());
  const Received received = Receive(client, 1);
  EXPECT_TRUE(received.result);
  EXPECT_THAT(received.events, ElementsAre("  x"));
  ASSERT_EQ(received.changes.size(), 4u);
  EXPECT_THAT(received.changes[0], StartsWith("cannot connect to " + server.Url() + ": "));
  EXPECT_EQ(received.changes[3], "connected to " + server.Url());
}

TEST(Listen, StopsIfAnotherAttemptCannotHelp) {
  for (const char* status : {"400", "401", "403", "404"}) {
    ScriptedServer server({std::string("HTTP/1.1 ") + status +
                           " No\r\n\r\n"
                           "{\"detail\": \"no such node\", \"remedy\": \"attach it\"}"});
    Client client = Make(server.Url());
    const Received received = Receive(client, 1);
    ASSERT_FALSE(received.result) << status;
    EXPECT_EQ(received.result.error().Message(), "no such node (attach it)");
    EXPECT_EQ(received.result.error().kind, ErrorKind::kInput);
  }
  ScriptedServer rude(
      {"HTTP/1.1 404 No\r\n\r\n"
       R"({"detail": "a\u001b[2Jb", "remedy": "c\nd", "pointer": "/x"})"});
  Client careful = Make(rude.Url());
  const Error error = Receive(careful, 1).result.error();
  EXPECT_EQ(error.Message(), "/x: a\\x1B[2Jb (c\\x0Ad)");
  EXPECT_EQ(error.where.pointer, "/x");
  ScriptedServer page({"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>"});
  Client client = Make(page.Url());
  EXPECT_FALSE(Receive(client, 1).result);
}

// A server that sends an event only on the second connection.
Received ReceiveAfterSilence(milliseconds silence) {
  Router router;
  int requests = 0;
  std::vector<std::shared_ptr<Stream>> streams;
  router.Add("GET", "/events", [&](const Call& call) -> asio::awaitable<Response> {
    streams.push_back(*call.open_stream());
    if (++requests >= 2) streams.back()->Send(std::make_shared<const std::string>("data: x\n\n"));
    co_return Response();
  });
  TestServer server(std::move(router));
  Client client = Make(server.Url());
  Received received = Receive(client, 1, "", silence);
  server.OnLoop([&] { streams.clear(); });
  return received;
}

TEST(Listen, ConnectsAgainAfterSilence) {
  // On a busy machine, a short silence may end before the event arrives.
  Received received = ReceiveAfterSilence(milliseconds(50));
  for (const int silence_ms : {500, 5000}) {
    if (received.changes.size() == 3) break;
    received = ReceiveAfterSilence(milliseconds(silence_ms));
  }
  EXPECT_THAT(received.events, ElementsAre("  x"));
  ASSERT_EQ(received.changes.size(), 3u);
  EXPECT_THAT(received.changes[1], HasSubstr("timed out"));
}

TEST(Listen, EndsWhenShouldEndReturnsTrue) {
  Client client = Make(UnusedUrl());
  int calls = 0;
  const auto result = client.Listen({.target = "/events",
                                     .on_event = [](const Event&) { return true; },
                                     .should_end = [&] { return ++calls > 5; }});
  EXPECT_TRUE(result);
}

}  // namespace
}  // namespace perseus::http
