#include "perseus/cluster/http/server.h"

#include <gmock/gmock.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include "perseus/cluster/http/offload.h"
#include "tests/support/test_server.h"

namespace perseus::http {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// "POST job=j-1 query=a:1 body=xyz peer=127.0.0.1 trace=…"
asio::awaitable<Response> Echo(Call& call) {
  Response response;
  response.content_type = "text/plain";
  response.body = call.request.method;
  for (const auto& [name, value] : call.path) {
    response.body.append(" ").append(name).append("=").append(value);
  }
  for (const auto& [name, value] : call.request.query) {
    response.body.append(" ").append(name).append(":").append(value);
  }
  response.body += " body=" + call.request.body + " peer=" + call.request.peer;
  response.body += " trace=" + call.request.trace + "\n";
  co_return response;
}

Router Routes() {
  Router router;
  router.Add("GET", "/echo/{job}", Echo, {.query = {"x"}});
  router.Add("POST", "/echo/{job}", Echo);
  router.Add("POST", "/size",
             [](const Call& call) -> asio::awaitable<Response> {
               Response response;
               response.body = std::to_string(call.request.body.size());
               co_return response;
             },
             {.body_bytes = 5'000'000});
  router.Add("GET", "/nothing", [](const Call&) -> asio::awaitable<Response> {
    Response response;
    response.status = 204;
    co_return response;
  });
  router.Add("GET", "/throws", [](const Call&) -> asio::awaitable<Response> {
    throw std::runtime_error("secret");
    co_return Response();
  });
  return router;
}

std::string Get(const std::string& target) {
  return "GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n";
}
std::string StatusOf(const std::string& response) { return response.substr(0, 12); }
std::string BodyOf(const std::string& response) {
  return response.substr(response.find("\r\n\r\n") + 4);
}

TEST(Server, AnswersOneRequestAfterAnotherOnAConnection) {
  TestServer server(Routes());
  RawClient client(server.port());
  for (int i = 0; i < 3; ++i) {
    const std::string response = client.Ask(Get("/echo/a%2Fb?x=%20"));
    EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(BodyOf(response), StartsWith("GET job=a/b x:  body= peer=127.0.0.1 trace="));
  }
  EXPECT_EQ(server.Counts().connections, 1);
}

TEST(Server, AnswersPipelinedRequestsInOrder) {
  TestServer server(Routes());
  RawClient client(server.port());
  std::string requests;
  for (int i = 0; i < 200; ++i) requests += Get("/echo/" + std::to_string(i));
  client.Send(requests);
  for (int i = 0; i < 200; ++i) {
    EXPECT_THAT(BodyOf(client.ReadResponse()), StartsWith("GET job=" + std::to_string(i) + " "));
  }
}

TEST(Server, AcceptsBodiesByLengthAndInChunks) {
  TestServer server(Routes());
  RawClient client(server.port());
  EXPECT_THAT(client.Ask("POST /echo/1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"),
              HasSubstr("body=abc"));
  EXPECT_THAT(client.Ask("POST /echo/1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                         "3\r\nabc\r\n4;note=1\r\ndefg\r\n0\r\nHost: b\r\n\r\n"),
              HasSubstr("body=abcdefg"));
  // Byte by byte.
  for (const std::string body : {"2\r\nab\r\n0\r\n\r\n", "0\r\n\r\n"}) {
    for (const char c :
         "POST /echo/1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + body) {
      client.Send(std::string(1, c));
      server.Counts();  // Waits for a turn of the loop.
    }
    EXPECT_THAT(client.ReadResponse(), HasSubstr(body.size() > 5 ? "body=ab " : "body= "));
  }
  const std::size_t size = 5'000'000;
  EXPECT_EQ(BodyOf(client.Ask("POST /size HTTP/1.1\r\nHost: a\r\nContent-Length: " +
                              std::to_string(size) + "\r\n\r\n" + std::string(size, 'x'))),
            "5000000");
}

TEST(Server, AnswersExpectContinue) {
  TestServer server(Routes());
  RawClient client(server.port());
  client.Send(
      "POST /echo/1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_THAT(client.Ask("abc"), HasSubstr("body=abc"));
}

TEST(Server, AnswersHeadLikeGetWithoutTheBody) {
  TestServer server(Routes());
  RawClient client(server.port());
  client.Send("HEAD /echo/1 HTTP/1.1\r\nHost: a\r\n\r\n" + Get("/nothing"));
  const std::string head = client.ReadUntil("\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("Content-Length: "));
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 204 "));
}

TEST(Server, ClosesIfTheClientWantsIt) {
  TestServer server(Routes());
  EXPECT_THAT(AllFor(server, "GET /nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
              HasSubstr("Connection: close"));
  EXPECT_THAT(AllFor(server, "GET /nothing HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 204"));
  RawClient half_closed(server.port());
  half_closed.Send(Get("/nothing"));
  half_closed.EndSending();
  EXPECT_THAT(half_closed.ReadAll(), StartsWith("HTTP/1.1 204"));
}

struct BadRequest {
  const char* name;
  std::string bytes;
  const char* status;
};

TEST(Server, RefusesMalformedRequests) {
  const std::string host = "Host: a\r\n";
  const std::string post = "POST /size HTTP/1.1\r\n" + host;
  const std::string chunks = "Transfer-Encoding: chunked\r\n";
  const BadRequest rows[] = {
      {"nonsense", "what is this\r\n\r\n", "400"},
      {"a TLS greeting", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11), "400"},
      {"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"},
      {"HTTP/9", "GET / HTTP/9.9\r\n" + host + "\r\n", "505"},
      {"no host", "GET / HTTP/1.1\r\n\r\n", "400"},
      {"two hosts", "GET / HTTP/1.1\r\n" + host + host + "\r\n", "400"},
      {"no path", "GET a HTTP/1.1\r\n" + host + "\r\n", "400"},
      {"an asterisk", "OPTIONS * HTTP/1.1\r\n" + host + "\r\n", "400"},
      {"a tunnel", "CONNECT b:1 HTTP/1.1\r\n" + host + "\r\n", "400"},
      {"half an escape", Get("/%4"), "400"},
      {"no escape", Get("/%zz"), "400"},
      {"an escaped zero", Get("/a%00"), "400"},
      {"no UTF-8", Get("/%ff"), "400"},
      {"no UTF-8 in the query", Get("/nothing?a=%ff"), "400"},
      {"bare newlines", "GET / HTTP/1.1\nHost: a\n\n", "400"},
      {"a field without a colon", "GET / HTTP/1.1\r\nHost\r\n\r\n", "400"},
      {"a space before the colon", "GET / HTTP/1.1\r\nHost : a\r\n\r\n", "400"},
      {"a zero in a field", std::string("GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", 27), "400"},
      {"a length below 0", post + "Content-Length: -1\r\n\r\n", "400"},
      {"too long a length", post + "Content-Length: 99999999999999999999\r\n\r\n", "400"},
      {"two lengths", post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400"},
      {"a length and chunks", post + "Content-Length: 5\r\n" + chunks + "\r\n0\r\n\r\n", "400"},
      {"chunks and a length", post + chunks + "Content-Length: 5\r\n\r\n0\r\n\r\n", "400"},
      {"another encoding", post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501"},
      {"an unknown encoding", post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "501"},
      {"chunks in HTTP/1.0", "POST /size HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       "400"},
      {"no chunk's size", post + chunks + "\r\nxyz\r\n", "400"},
      {"a chunk longer than it says", post + chunks + "\r\n1\r\nabc\r\n", "400"},
  };
  TestServer server(Routes());
  for (const BadRequest& row : rows) {
    SCOPED_TRACE(row.name);
    RawClient client(server.port());
    client.Send(row.bytes + "\r\n\r\n" + Get("/nothing"));
    client.EndSending();
    const std::string response = client.ReadResponse();
    EXPECT_EQ(StatusOf(response), std::string("HTTP/1.1 ") + row.status);
    EXPECT_THAT(response, HasSubstr("application/problem+json"));
  }
  EXPECT_THAT(ResponseTo(server, Get("/nothing")), StartsWith("HTTP/1.1 204"));
}

// If the end of a request is unknown, the next bytes could be a smuggled request.
TEST(Server, ReadsNoRequestAfterOneWithoutAnEnd) {
  TestServer server(Routes());
  RawClient client(server.port());
  client.Send(
      "POST /size HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
      "0\r\n\r\n" +
      Get("/echo/smuggled"));
  const std::string all = client.ReadAll();
  EXPECT_THAT(all, StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(all, Not(HasSubstr("smuggled")));
}

TEST(Server, ReportsUnknownPathsAndMethods) {
  TestServer server(Routes());
  RawClient client(server.port());
  EXPECT_THAT(client.Ask(Get("/v2/jobs")),
              testing::AllOf(StartsWith("HTTP/1.1 404 Not Found\r\n"),
                             HasSubstr("\"/v2/jobs does not exist\"")));
  EXPECT_THAT(
      client.Ask("DELETE /echo/1 HTTP/1.1\r\nHost: a\r\n\r\n"),
      testing::AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("\r\nAllow: GET, HEAD, POST\r\n")));
  EXPECT_THAT(client.Ask(Get("/nothing")), StartsWith("HTTP/1.1 204"));
}

TEST(Server, HidesTheFailureOfAHandler) {
  std::vector<std::string> failures;
  std::vector<std::string> answers;
  ServerOptions options;
  options.failed = [&](const Request& request, std::string_view pattern, std::string_view what) {
    failures.push_back(request.path + " " + std::string(pattern) + " " + std::string(what));
  };
  options.answered = [&](const Request& request, std::string_view pattern, int status, double) {
    answers.push_back(request.method + " " + std::string(pattern) + " " + std::to_string(status));
  };
  TestServer server(Routes(), options);
  RawClient client(server.port());
  const std::string response =
      client.Ask(Get("/throws") + Get("/nothing") + Get("/else") + Get("/%zz"));
  EXPECT_THAT(response, StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(response, Not(HasSubstr("secret")));
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 204"));
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 400"));
  server.OnLoop([&] {
    EXPECT_THAT(failures, ElementsAre("/throws /throws secret"));
    EXPECT_THAT(answers,
                ElementsAre("GET /throws 500", "GET /nothing 204", "GET  404", "GET  400"));
  });
}

TEST(Server, CompletesRunningRequestsWhenItStops) {
  asio::thread_pool pool(1);
  std::promise<void> may_end;
  auto ends = may_end.get_future().share();
  std::promise<void> has_begun;
  Router router = Routes();
  router.Add("GET", "/slow", [&](const Call&) -> asio::awaitable<Response> {
    co_await Offload(pool, [&] {
      has_begun.set_value();
      ends.wait();
    });
    co_return Response();
  });
  TestServer server(std::move(router));
  RawClient idle(server.port());
  EXPECT_THAT(idle.Ask(Get("/nothing")), StartsWith("HTTP/1.1 204"));
  RawClient busy(server.port());
  busy.Send(Get("/slow"));
  has_begun.get_future().wait();
  server.OnLoop([&] { server.server().Stop(std::chrono::minutes(1)); });
  EXPECT_TRUE(idle.IsClosedByServer());
  EXPECT_THROW(RawClient(server.port()), std::runtime_error);
  may_end.set_value();
  const std::string response = busy.ReadAll();
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(response, HasSubstr("Connection: close"));
  pool.join();
}

TEST(Server, ReportsWhyItCannotListen) {
  asio::io_context loop;
  for (const char* address : {"", "7410", "perseus:7410", "127.0.0.1:x"}) {
    const auto server = Server::Listen(loop, {.address = address}, Routes());
    ASSERT_FALSE(server) << address;
    EXPECT_EQ(server.error().kind, ErrorKind::kInput);
  }
  TestServer other(Routes());
  const std::string taken = "127.0.0.1:" + std::to_string(other.port());
  const auto server = Server::Listen(loop, {.address = taken}, Routes());
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().kind, ErrorKind::kSystem);
}

TEST(Offload, RunsOnThePoolAndReturnsToTheLoop) {
  asio::io_context loop;
  asio::thread_pool pool(1);
  std::thread::id worked;
  std::string failure;
  bool is_back = false;
  auto work = [&]() -> asio::awaitable<void> {
    const int answer = co_await Offload(pool, [&] {
      worked = std::this_thread::get_id();
      return 42;
    });
    EXPECT_EQ(answer, 42);
    try {
      co_await Offload(pool, []() -> int { throw std::runtime_error("no"); });
    } catch (const std::runtime_error& error) {
      failure = error.what();
    }
  };
  const auto here = std::this_thread::get_id();
  asio::co_spawn(loop, work, [&](const std::exception_ptr& error) {
    EXPECT_FALSE(error);
    is_back = std::this_thread::get_id() == here;
  });
  loop.run();
  pool.join();
  EXPECT_NE(worked, here);
  EXPECT_TRUE(is_back);
  EXPECT_EQ(failure, "no");
}

// The pool has one thread, and more work waits for this thread.
TEST(Offload, AnAnswerDoesNotWaitForOtherWork) {
  asio::io_context loop;
  asio::thread_pool pool(1);
  std::promise<void> answered;
  auto is_answered = answered.get_future();
  bool came_first = false;
  auto quick = [&]() -> asio::awaitable<void> {
    co_await Offload(pool, [] {});
    answered.set_value();
  };
  auto slow = [&]() -> asio::awaitable<void> {
    co_await Offload(pool, [&] {
      came_first = is_answered.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    });
  };
  // Both tasks are in the queue before the thread of the pool begins.
  std::promise<void> may_begin;
  asio::post(pool, [begin = may_begin.get_future().share()] { begin.wait(); });
  asio::co_spawn(loop, quick, asio::detached);
  asio::co_spawn(loop, slow, asio::detached);
  asio::post(loop, [&] { may_begin.set_value(); });
  loop.run();
  pool.join();
  EXPECT_TRUE(came_first);
}

TEST(Server, RefusesInputThatARouteDoesNotAccept) {
  Router router;
  router.Add("GET", "/list", Echo, {.query = {"limit", "after"}});
  router.Add("POST", "/json", Echo);
  router.Add("PUT", "/csv", Echo, {.media_type = "text/csv"});
  TestServer server(std::move(router));
  const auto answer = [&](const std::string& line, const std::string& fields,
                          const std::string& body) {
    RawClient client(server.port());
    client.Send(line + " HTTP/1.1\r\nHost: a\r\n" + fields +
                "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    return client.ReadResponse();
  };
  struct {
    const char* line;
    const char* fields;
    const char* body;
    const char* status;
    const char* text;
  } const rows[] = {
      {"GET /list?limit=5&after=x", "", "", "200", ""},
      {"GET /list?limits=5", "", "", "400",
       R"("pointer":"?limits","remedy":"the query fields are limit, after")"},
      {"GET /list?limit=5&limit=6", "", "", "400", R"("pointer":"?limit")"},
      {"POST /json?x", "", "{}", "400", "send no query"},
      {"POST /json", "", "{}", "200", ""},
      {"POST /json", "Content-Type: Application/JSON ; charset=utf-8\r\n", "{}", "200", ""},
      {"POST /json", "Content-Encoding: identity\r\n", "{}", "200", ""},
      {"POST /json", "Content-Encoding: gzip\r\n", "{}", "415", "send the body without encoding"},
      {"POST /json", "Content-Type: text/plain\r\n", "{}", "415",
       R"(send the header \"Content-Type: application/json\" (curl: add -H )"
       R"('Content-Type: application/json'))"},
      {"POST /json", "Content-Type: application/x-www-form-urlencoded\r\n", "{}", "415",
       "curl: add -H 'Content-Type: application/json'"},
      {"POST /json", "Content-Type: text/plain\r\n", "", "200", ""},
      {"PUT /csv", "Content-Type: text/csv\r\n", "a,b", "200", ""},
      {"PUT /csv", "Content-Type: application/json\r\n", "a,b", "415",
       "curl: add -H 'Content-Type: text/csv'"},
  };
  for (const auto& row : rows) {
    const std::string response = answer(row.line, row.fields, row.body);
    EXPECT_THAT(response, StartsWith("HTTP/1.1 " + std::string(row.status)))
        << row.line << row.fields;
    EXPECT_THAT(response, HasSubstr(row.text)) << row.line << row.fields;
  }
}

TEST(Server, AnswersWithTheTraceId) {
  TestServer server(Routes());
  RawClient client(server.port());
  const std::string trace = "0af7651916cd43dd8448eb211c80319c";
  const std::string field = "traceparent: 00-" + trace + "-b7ad6b7169203331-01\r\n";
  EXPECT_THAT(
      client.Ask("GET /echo/a HTTP/1.1\r\nHost: a\r\n" + field + "\r\n"),
      testing::AllOf(HasSubstr("traceresponse: 00-" + trace + "-"), HasSubstr(" trace=" + trace)));
  const std::string failed = client.Ask("GET /throws HTTP/1.1\r\nHost: a\r\n" + field + "\r\n");
  EXPECT_THAT(failed, HasSubstr("traceresponse: 00-" + trace + "-"));
  EXPECT_THAT(failed, HasSubstr(R"("trace":")" + trace + "\""));
  const std::string own =
      client.Ask("GET /nowhere HTTP/1.1\r\nHost: a\r\ntraceparent: 00-0-0-0\r\n\r\n");
  EXPECT_THAT(own, testing::ContainsRegex("traceresponse: 00-[0-9a-f]{32}-[0-9a-f]{16}-00\r\n"));
  EXPECT_THAT(own, Not(HasSubstr("\"trace\":")));
}

}  // namespace
}  // namespace perseus::http
