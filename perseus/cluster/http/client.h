// An HTTP/1.1 client for programs that talk to a server of ours: blocking, one connection that is
// kept, and event streams that come back.
//
//   auto client = Client::Create({.server = "https://perseus:7410", .token = …});
//   auto response = client->Send({.target = "/v1/jobs"});
//
// Each request is a trace of its own (`traceparent`), by which the server's log has it.
//
// Not thread safe: a Client and a thread each.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "perseus/base/result.h"
#include "perseus/cluster/http/message.h"

namespace perseus::http {

struct ClientOptions {
  // "http://host:port" or "https://…"; several with commas in between: replicas, tried in turn.
  std::string server = "http://127.0.0.1:7410";
  std::string token = {};        // Sent as a bearer's.
  std::string authority = {};    // PEM of whom to trust; empty: the system's.
  std::string certificate = {};  // PEM of one's own, where the server asks for it.
  std::string key = {};
  std::chrono::milliseconds timeout{30'000};  // Of a request, connecting included.
};

class Client {
 public:
  static Result<Client> Create(ClientOptions options);  // kInput: no such URL, no such file.
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  struct Outgoing {
    std::string method = "GET";
    std::string target = {};  // "/v1/jobs?limit=5", encoded.
    std::string body = {};
    std::string content_type = "application/json";
    Fields fields = {};
  };
  // Any status is a response. kSystem: no server could be reached, with each one's reason; a
  // request that was sent and not answered is tried again elsewhere only where that does no harm
  // (GET, HEAD, PUT, DELETE).
  Result<Response> Send(const Outgoing& request);
  // As Send, but anything but 2xx is an error with the problem's pointer, detail and remedy: 409
  // and 422 kUnreachable, 408 and 429 and all beyond 4xx kSystem, else kInput.
  Result<Response> SendWell(const Outgoing& request);
  // The body of that.
  Result<std::string> Ask(const Outgoing& request);

  // Reads an event stream until `heard` says false or `should_end` does, which is looked at several
  // times a second. Connects again, elsewhere if there is another server, with the last event's id
  // when the stream breaks or is silent for `silence` (of a server's two beats, one may come late):
  // at once, then with growing, scattered pauses
  // up to 5 s. `changed` is told what happens to the connection: "connected to …", "lost …: why;
  // trying again". Returns an error only for what trying again does not mend: a status of 4xx but
  // for 408 and 429. Looking up a host's name takes as long as the system lets it.
  struct Listening {
    std::string target = {};
    std::string last_event_id = {};  // To begin with.
    // Asked before each connection for the id to send, by those who know better what they have.
    std::function<std::string()> position = {};
    std::chrono::milliseconds silence{12'000};
    std::function<bool(const Event&)> heard = {};
    std::function<void(std::string_view)> changed = {};  // May be left out,
    std::function<bool()> should_end = {};               // and so may this.
  };
  Result<void> Listen(const Listening& listening);

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// For paths and queries.
std::string PercentEncoded(std::string_view text);

}  // namespace perseus::http
