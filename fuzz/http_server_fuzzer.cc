// Sends bytes on a connection, in pieces of any size. Checks that the server does not crash, does
// not fail (500), and answers the next client.
#include <sys/socket.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/require.h"
#include "perseus/base/file_descriptor.h"
#include "perseus/cluster/http/server_state.h"

namespace {

namespace http = perseus::http;
namespace asio = boost::asio;
using perseus::fuzz::Require;

asio::awaitable<http::Response> Answer(http::Call& call) {
  http::Response response;
  for (const auto& [name, value] : call.path) response.fields.emplace_back(name, value);
  response.body = call.request.body;
  co_return response;
}

asio::awaitable<http::Response> Events(http::Call& call) {
  auto stream = call.open_stream();
  if (stream) {
    (*stream)->Send(std::make_shared<const std::string>("event: a\nid: b\ndata: c\n\n"));
  }
  co_return http::Response();
}

// Streams that stay open until the client sends more, or closes the connection.
using Streams = std::vector<std::shared_ptr<http::Stream>>;

http::Router Routes(Streams& held) {
  http::Router router;
  router.Add("GET", "/a", Answer);
  router.Add("POST", "/a", Answer);
  router.Add("GET", "/a/{b}", Answer);
  router.Add("GET", "/e", Events);
  router.Add("GET", "/s", [&held](http::Call& call) -> asio::awaitable<http::Response> {
    if (auto stream = call.open_stream()) held.push_back(*std::move(stream));
    co_return http::Response();
  });
  return router;
}

// Sends each piece and lets the server process it. The input determines the sizes of the pieces.
asio::awaitable<void> Send(int socket, std::string_view text) {
  while (!text.empty()) {
    const std::size_t size =
        std::min<std::size_t>(text.size(), 1 + static_cast<unsigned char>(text.front()) % 64);
    if (::send(socket, text.data(), size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) break;
    text.remove_prefix(size);
    for (int turn = 0; turn < 3; ++turn) {
      co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
    }
  }
  ::shutdown(socket, SHUT_WR);
}

std::string Converse(std::string_view text) {
  asio::io_context loop;
  Streams held;
  http::ServerOptions options;
  options.limits.header_bytes = 2000;
  options.limits.body_bytes = 2000;
  auto state = std::make_shared<http::ServerState>(loop, options, Routes(held));
  int ends[2];
  Require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  const perseus::FileDescriptor client(ends[0]);
  http::Connection::Peer peer{.address = "192.0.2.1",
                              .ticket = state->connections.Enter("192.0.2.1")};
  asio::co_spawn(loop,
                 http::Serve(std::make_shared<http::Connection>(
                     state, perseus::FileDescriptor(ends[1]), nullptr, std::move(peer))),
                 asio::detached);
  asio::co_spawn(loop, Send(client.get(), text), asio::detached);
  loop.run();
  Require(state->open.empty() && state->streams.empty() && state->body_bytes == 0);
  std::string answer;
  char bytes[4096];
  for (ssize_t came; (came = ::recv(client.get(), bytes, sizeof(bytes), 0)) > 0;) {
    answer.append(bytes, static_cast<std::size_t>(came));
  }
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The buffer of the socket is larger than the input, so one call sends the whole input.
  if (size > 50'000) return 0;
  const std::string answer = Converse({reinterpret_cast<const char*>(data), size});
  Require(answer.empty() || answer.starts_with("HTTP/1.1 "));
  Require(!answer.starts_with("HTTP/1.1 500 "));
  return 0;
}
