// A blocking HTTP/1.1 client for the Perseus server. It keeps one connection open, and reconnects
// event streams.
//
//   auto client = Client::Create({.server = "https://perseus:7410", .token = …});
//   auto response = client->Send({.target = "/v1/jobs"});
//
// Not thread safe: use one Client for each thread.
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
  // "http://host:port" or "https://…". Several URLs (the replicas of a server) are separated by
  // commas. The client tries them in turn.
  std::string server = "http://127.0.0.1:7410";
  std::string token = {};  // Sent as a bearer token.
  // If set, returns the token for each request and each connection, in place of `token`.
  std::function<std::string()> token_of = {};
  // PEM file of the trusted authority. Empty: the system's authorities.
  std::string authority = {};
  std::string certificate = {};  // PEM file of the client certificate, if the server requires one.
  std::string key = {};
  // The longest time of a request, including the connection.
  std::chrono::milliseconds timeout{30'000};
  std::size_t longest_body = 1 << 30;  // A longer answer is an error.
  // If set, Send calls this function several times per second. Send fails once the function returns
  // true.
  std::function<bool()> should_end = {};
};

class Client {
 public:
  static Result<Client> Create(ClientOptions options);  // Fails (kInput) for a bad URL or file.
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  struct Outgoing {
    std::string method = "GET";
    std::string target = {};  // The encoded target, such as "/v1/jobs?limit=5".
    std::string body = {};
    std::string content_type = "application/json";
    Fields fields = {};
  };
  // Returns the response, whatever its status. Fails (kSystem) if no server could be reached, with
  // the reason for each server. If a server did not answer, sends the request to another server
  // only if a repetition is harmless (GET, HEAD, PUT, DELETE).
  Result<Response> Send(const Outgoing& request);
  // The same as Send, but a status other than 2xx is an error. The error has the pointer, detail
  // and remedy of the problem document. Its kind is kUnreachable for 409 and 422, kSystem for 408,
  // 429 and 5xx, and kInput for all other statuses.
  Result<Response> SendOrFail(const Outgoing& request);
  // The same as SendOrFail, but returns the body.
  Result<std::string> Fetch(const Outgoing& request);

  // Reads an event stream until `on_event` returns false or `should_end` returns true.
  // (`should_end` is called several times per second.) If the stream breaks, or is silent for
  // `silence`, connects again with the id of the last event. Uses another server if there is one.
  // `silence` covers two heartbeats of the server, so that one heartbeat may be late. The first
  // attempt follows at once. The other attempts follow after growing, random pauses of up to 5 s.
  // `on_change` receives changes of the connection: "connected to …", "lost …: why; trying again",
  // and once for each reason "cannot connect to …: why; trying again". Returns an error only if
  // another attempt cannot help, which is the case for 4xx except 408 and 429. The lookup of a host
  // name may take as long as the system allows.
  struct Listening {
    std::string target = {};
    std::string last_event_id = {};  // The id for the first connection.
    // If set, returns the id to send with each connection, in place of the id of the last event.
    std::function<std::string()> position = {};
    std::chrono::milliseconds silence{12'000};
    std::function<bool(const Event&)> on_event = {};
    std::function<void(std::string_view)> on_change = {};  // Optional.
    std::function<bool()> should_end = {};                 // Optional.
  };
  Result<void> Listen(const Listening& listening);

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Escapes a text for a path or a query.
std::string PercentEncoded(std::string_view text);

}  // namespace perseus::http
