#include "perseus/http/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "perseus/http/client.h"

namespace perseus::http {
namespace {

TEST(Server, Answers) {
  asio::io_context loop;
  Router router;
  router.Add("POST", "/v1/{name}", [](const Call& call) -> asio::awaitable<Response> {
    Response response;
    response.body = call.path.at("name") + ":" + call.request.body;
    co_return response;
  });
  ServerOptions options;
  options.address = "127.0.0.1:0";
  auto server = Server::Listen(loop, options, std::move(router));
  ASSERT_TRUE(server) << server.error().message;
  std::thread thread([&] { loop.run(); });
  auto client = Client::Create({.server = fmt::format("http://127.0.0.1:{}", server->port())});
  ASSERT_TRUE(client);
  for (int i = 0; i < 3; ++i) {
    const auto body = client->Ask({.method = "POST", .target = "/v1/a%2Fb", .body = "hello"});
    ASSERT_TRUE(body) << body.error().message;
    EXPECT_EQ(*body, "a/b:hello");
  }
  asio::post(loop, [&] { server->Stop(std::chrono::milliseconds(100)); });
  thread.join();
}

}  // namespace
}  // namespace perseus::http
