// A blocking connection of a client to one server. No call blocks longer than its limit.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/host_port.h"
#include "perseus/base/result.h"
#include "perseus/cluster/http/link.h"

namespace perseus::http {

struct ServerUrl {
  std::string text;  // Such as "https://perseus:7410".
  bool is_tls = false;
  HostPort at;
};
// Parses one or more comma-separated URLs. The default port is 7410.
Result<std::vector<ServerUrl>> ParseServerUrls(std::string_view text);

class ClientConnection {
 public:
  using Clock = std::chrono::steady_clock;
  // When to stop waiting. `should_end` is called several times per second. It may be empty.
  struct TimeLimit {
    Clock::time_point until;
    std::function<bool()> should_end;
  };

  // In all functions, an error message contains only a reason ("connection refused").
  static Result<ClientConnection> Open(const ServerUrl& server, const TlsContext& tls,
                                       const TimeLimit& limit);

  // Whether the connection seems open, without unexpected input.
  bool IsUsable() const;

  struct Written {
    std::size_t bytes = 0;
    std::optional<Error> failure;  // Empty if all bytes are written.
  };
  Written Write(std::string_view text, const TimeLimit& limit);
  // Returns the next received bytes, or an empty text if the other side has closed the connection.
  Result<std::string> Read(const TimeLimit& limit);
  // Discards bytes that were written but not delivered. Otherwise, if the request is repeated at
  // another server, the old copy could still reach this server later, after newer requests. After
  // this call, the connection can only be closed.
  void Abandon();

 private:
  ClientConnection(FileDescriptor socket, Link link)
      : socket_(std::move(socket)), link_(std::move(link)) {}
  // Waits until the link can continue. Fails if it never can.
  Result<void> Await(const Link::Moved& moved, const TimeLimit& limit) const;

  FileDescriptor socket_;
  Link link_;
};

}  // namespace perseus::http
