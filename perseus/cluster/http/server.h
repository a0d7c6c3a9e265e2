// An HTTP/1.1 server with event streams. It faces the network, so it limits what clients can do.
//
//   Router router;
//   router.Add("GET", "/v1/jobs/{job}", [](const Call& call) -> asio::awaitable<Response> { … });
//   auto server = Server::Listen(loop, {.address = "127.0.0.1:7410"}, std::move(router));
//   loop.run();
//
// Everything runs on the thread of the loop. A handler that has to wait (for a database) awaits
// work on other threads (offload.h). If a handler throws, the answer is 500, and the server calls
// ServerOptions::failed.
//
// Limits bounds what a client can do. It bounds the sizes of header and body, and the time in which
// they must arrive (against slow-loris attacks). It also bounds the time of an idle connection, the
// number of connections and streams, and the requests per second from one address. Beyond a limit,
// the answer is a problem document with 431, 413, 408, 503 or 429 (and with Retry-After where a
// retry helps), or the connection is closed.
//
// An unknown route is 404. A wrong method for a route is 405 with Allow. HEAD is GET without the
// body. If a route does not accept a request (Takes), the request is refused before its body is
// read. An unknown query field is 400, a body that is too large is 413, and a body of another type
// or encoding is 415.
//
// Every answer except an event stream has the trace id of the request in `traceresponse`. A 5xx
// problem also has the trace id as the member `trace`.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/http/message.h"
#include "perseus/cluster/http/tls.h"
#include "perseus/cluster/http/unix_listener.h"

namespace perseus::http {

namespace asio = boost::asio;

// Sends events to one client. Sending never blocks and never fails. The stream is closed if the
// client disconnects, leaves more than Limits::stream_bytes unread, or receives nothing between two
// heartbeats. Then later events are dropped. The client connects again with the id of its last
// event. A stream must not outlive the loop.
class Stream {
 public:
  virtual ~Stream() = default;  // Closes the stream.
  // `text` consists of complete events (protocol::FormatEvent). It is shared, because thousands of
  // clients receive the same text.
  virtual void Send(std::shared_ptr<const std::string> text) = 0;
  virtual bool IsOpen() const = 0;
  // Closes the stream after the earlier events are sent.
  virtual void Close() = 0;
  // `closed` is called once when either side closes the stream. It is called on the loop, never
  // within Send or Close.
  virtual void OnClose(std::function<void()> closed) = 0;
};

// A request for a route.
struct Call {
  Request request;
  Fields path;  // The parameters of the path, such as {"job": "j-1"}.
  // Answers 200 with text/event-stream and keeps the connection for events. The server sends a
  // comment every Limits::stream_beat, so that each side notices if the other side disappears.
  // After this call, the response of the handler is ignored. Fails (kSystem) if there are too many
  // streams: then answer 503. Call it at most once.
  std::function<Result<std::shared_ptr<Stream>>()> open_stream;
  // Whether the client still waits for the answer. For slow handlers.
  std::function<bool()> is_client_there;
};
using Handler = std::function<asio::awaitable<Response>(Call&)>;

// What a request for a route may contain, in addition to the path.
struct Takes {
  std::size_t body_bytes = 256 << 10;  // The largest body. Limits::body_bytes also applies.
  std::string media_type = "application/json";  // The Content-Type, if the request has one.
  std::vector<std::string> query = {};          // Names of the query fields.
};

class Router {
 public:
  // A `pattern` is "/v1/jobs/{job}/stragglers/{dp_rank}". A {name} matches one non-empty segment.
  void Add(std::string method, std::string pattern, Handler handler, Takes takes = {});

  struct Match {
    const Handler* handler = nullptr;  // Null if no route has this path and method.
    const Takes* takes = nullptr;      // Null if `handler` is null.
    std::string pattern;               // For metrics. Empty if no route has this path.
    Fields path;
    std::string allow;  // The methods of this path.
  };
  // Finds the route. `path` is not decoded: "/v1/jobs/a%2Fb" has the job "a/b".
  Match Find(std::string_view method, std::string_view path) const;
  // Returns all routes, sorted: "GET /v1/jobs/{job}".
  std::vector<std::string> Routes() const;

 private:
  struct Route {
    std::string method;
    std::string pattern;
    std::vector<std::string> segments;
    Handler handler;
    Takes takes;
  };
  std::vector<Route> routes_;
};

struct Limits {
  std::size_t header_bytes = 16 << 10;
  std::size_t body_bytes = 64 << 20;         // The largest body, for all routes.
  std::size_t all_bodies_bytes = 256 << 20;  // The bodies of all running requests together.
  std::chrono::milliseconds request_time{
      30'000};  // From the first byte of a request to its last. Also limits a handshake, and the
                // time in which the client must receive an answer.
  std::chrono::milliseconds idle_time{75'000};  // Between requests, and before the first request.
  std::chrono::milliseconds stream_beat{5'000};
  // The most bytes that the client of a stream may leave unread.
  std::size_t stream_bytes = 1 << 20;
  int connections = 32'000;  // A node has two connections: its event stream, and one for requests.
  int streams = 15'000;
  // From one address. A burst may use up the requests of one second. 0: no limit.
  double requests_per_second = 0;
};

struct ServerOptions {
  std::string address = "127.0.0.1:7410";  // Port 0: any free port.
  // If set, the server also listens on this socket, without TLS.
  std::optional<UnixAddress> unix_socket = {};
  Limits limits = {};
  std::optional<TlsFiles> tls = {};
  // Finds the users of clients on this machine that connect over TCP (local_user.h).
  bool finds_local_users = false;
  // Called for each answered request: for metrics and the log.
  std::function<void(const Request&, std::string_view pattern, int status, double seconds)>
      answered = {};
  // Called when a handler throws, for the log. `what` is not sent to the client.
  std::function<void(const Request&, std::string_view pattern, std::string_view what)> failed = {};
};

class Server {
 public:
  // Fails (kInput) for a bad address, certificate or key (with the file and the reason). Fails
  // (kSystem) if the address is in use, and with the errors of ListenUnix.
  static Result<Server> Listen(asio::io_context& loop, ServerOptions options, Router router);
  Server(Server&&) noexcept;
  Server& operator=(Server&&) noexcept;
  ~Server();  // Closes everything. The functions in the options are not called afterwards.

  int port() const;
  struct Counts {
    int connections = 0;
    int streams = 0;
    std::int64_t refused = 0;          // Connections beyond a limit.
    std::int64_t dropped_streams = 0;  // Streams of clients that did not read.
  };
  Counts counts() const;
  // Reads the TLS files again, for new connections. After a failure, the server continues with the
  // old certificate and key.
  Result<void> ReloadTls();
  // Accepts no more connections, closes streams, waits at most `grace` for running requests, and
  // then closes everything. Afterwards the server has no more work on the loop.
  void Stop(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit Server(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace perseus::http
