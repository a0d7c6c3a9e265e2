// A client's connection to one server: blocks, but never beyond a deadline.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"
#include "perseus/cluster/http/address.h"
#include "perseus/cluster/http/link.h"

namespace perseus::http {

class ClientConnection {
 public:
  using Clock = std::chrono::steady_clock;
  // When to give up. `should_end` is asked several times a second; it may be empty.
  struct Patience {
    Clock::time_point until;
    std::function<bool()> should_end;
  };

  // Messages are reasons only ("connection refused"); so are the others'.
  static Result<ClientConnection> Open(const ServerUrl& server, const TlsContext& tls,
                                       const Patience& patience);

  // Nothing came that nobody waits for, and it was not closed, as far as can be told.
  bool IsUsable() const;

  struct Written {
    std::size_t bytes = 0;
    std::string failure;  // Empty: all of it.
  };
  Written Write(std::string_view text, const Patience& patience);
  // What came next; empty when the other side has closed.
  Result<std::string> Read(const Patience& patience);
  // What was written and has not arrived yet never shall: a request that is sent again elsewhere
  // must not be heard here once the network is mended, over newer ones. Closing is then all there
  // is to do with it.
  void Abandon();

 private:
  ClientConnection(FileDescriptor socket, Link link)
      : socket_(std::move(socket)), link_(std::move(link)) {}
  std::string FailureOf(const Link::Moved& moved) const;

  FileDescriptor socket_;
  Link link_;
};

}  // namespace perseus::http
