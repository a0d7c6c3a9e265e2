// An HTTP/1.1 server with event streams: what faces the network, and all that has to be limited
// there.
//
//   Router router;
//   router.Add("GET", "/v1/jobs/{job}", [](const Call& call) -> asio::awaitable<Response> { … });
//   auto server = Server::Listen(loop, {.address = "127.0.0.1:7410"}, std::move(router));
//   loop.run();
//
// One thread: everything here runs on the loop's. A handler that has to wait (for a database)
// hands that to other threads and awaits them (offload.h); a handler that throws is answered with
// 500, and ServerOptions::failed hears of it.
//
// What a client can do to it is bounded (Limits): header and body sizes, the time that a request's
// header and body may take to come (slow loris) and an idle connection may stay, connections in all
// and from one address, streams, requests a second from one address. Beyond: 431, 413, 408, 503,
// 429, each a problem document with Retry-After where that helps, or the connection is closed.
//
// What is no route is 404, another method of one 405 with Allow; HEAD is GET without the body. What
// a route does not take (Takes) is refused before the body is read: query fields 400, a body that
// is too large 413, of another type or encoded 415.
//
// Every answer but an event stream has the request's trace in `traceresponse`; a problem of 5xx has
// it as its member `trace`, too.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/http/message.h"
#include "perseus/cluster/http/tls.h"

namespace perseus::http {

namespace asio = boost::asio;

// Events to one client. Sending never blocks and never fails: a client that is gone, that leaves
// more than Limits::stream_bytes unread, or that took nothing between two beats, is closed, and
// what is sent to it is dropped. It comes back with its last event's id. Not to outlive the loop.
class Stream {
 public:
  virtual ~Stream() = default;  // As Close.
  // `text`: FormatEvent's. Shared, since thousands of clients are sent the same.
  virtual void Send(std::shared_ptr<const std::string> text) = 0;
  virtual bool IsOpen() const = 0;
  // What was sent before still goes out.
  virtual void Close() = 0;
  // Called once when it is closed, by whichever side; on the loop, never from within Send or Close.
  virtual void OnClose(std::function<void()> closed) = 0;
};

// A request that came to a route.
struct Call {
  Request request;
  std::map<std::string, std::string, std::less<>> path;  // {"job": "j-1"}
  // Answers 200 with text/event-stream and keeps the connection for events; a comment goes out
  // every Limits::stream_beat, so that both ends notice the other's death. The handler's own
  // response is then ignored. Fails (kSystem) if there are too many streams: answer 503. At most
  // once.
  std::function<Result<std::shared_ptr<Stream>>()> open_stream;
  // Whether anybody waits for the answer still: for handlers that take their time.
  std::function<bool()> is_client_there;
};
using Handler = std::function<asio::awaitable<Response>(Call&)>;

// What a route takes beside its path.
struct Takes {
  std::size_t body_bytes = 256 << 10;           // At most, and not more than Limits::body_bytes.
  std::string media_type = "application/json";  // Of a body that says of which it is.
  std::vector<std::string> query = {};          // Names of the query's fields.
};

class Router {
 public:
  // `pattern`: "/v1/jobs/{job}/stragglers/{pipeline}"; a {name} takes one segment, not empty.
  void Add(std::string method, std::string pattern, Handler handler, Takes takes = {});

  struct Match {
    const Handler* handler = nullptr;  // Null: no such route, or not by that method.
    const Takes* takes = nullptr;      // As handler.
    std::string pattern;               // For metrics; empty: no route at all.
    std::map<std::string, std::string, std::less<>> path;
    std::string allow;  // Methods that the path has.
  };
  // `path` as it came, with its escapes: "/v1/jobs/a%2Fb" has the job "a/b".
  Match Find(std::string_view method, std::string_view path) const;
  // "GET /v1/jobs/{job}", sorted.
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
  std::size_t body_bytes = 64 << 20;               // Whatever the route takes.
  std::size_t all_bodies_bytes = 256 << 20;        // Of requests in hand, together.
  std::chrono::milliseconds request_time{30'000};  // From a request's first byte to its last; also
                                                   // for a handshake, and to take an answer.
  std::chrono::milliseconds idle_time{75'000};     // Between requests; a new connection's first.
  std::chrono::milliseconds stream_beat{5'000};
  std::size_t stream_bytes = 1 << 20;  // Unread by a stream's client.
  int connections = 16'000;
  int connections_per_address = 16'000;
  int streams = 15'000;
  double requests_per_second = 0;  // Of one address, with bursts of as many; 0: any.
};

struct ServerOptions {
  std::string address = "127.0.0.1:7410";  // Port 0: any.
  Limits limits = {};
  std::optional<TlsFiles> tls = {};
  // Called for each answered request: for metrics and the log.
  std::function<void(const Request&, std::string_view pattern, int status, double seconds)>
      answered = {};
  // A handler threw, and the client was told no more than that: for the log.
  std::function<void(const Request&, std::string_view pattern, std::string_view what)> failed = {};
};

class Server {
 public:
  // kInput: no address, or files that are no certificate and key (says which and why); kSystem:
  // the address is taken.
  static Result<Server> Listen(asio::io_context& loop, ServerOptions options, Router router);
  Server(Server&&) noexcept;
  Server& operator=(Server&&) noexcept;
  ~Server();  // Closes everything; no function of the options is called any more.

  int port() const;
  struct Counts {
    int connections = 0;
    int streams = 0;
    std::int64_t refused = 0;          // Connections beyond a limit.
    std::int64_t dropped_streams = 0;  // Clients that did not read.
  };
  Counts counts() const;
  // New connections use the files as they are now (rotated certificates). On failure the old ones
  // stay.
  Result<void> ReloadTls();
  // Takes no more connections, closes streams, lets requests in flight end for that long, then
  // closes everything. The loop has nothing more to do for it afterwards.
  void Stop(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit Server(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace perseus::http
