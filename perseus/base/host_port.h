// Parses the address of a socket, "127.0.0.1:7410", and tells whether it is a loopback address.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "perseus/base/result.h"

namespace perseus {

struct HostPort {
  std::string host;  // "127.0.0.1", "::1", "perseus"
  std::uint16_t port = 0;
};
// Parses "host:port" or "[::1]:port". Fails (kInput) if the text is neither. The host may be a
// name.
Result<HostPort> ParseHostPort(std::string_view text);

// Whether only this machine can reach the host: "localhost", "::1", "127.0.0.1". Returns false for
// all other names, even those that begin with "127.".
bool IsLoopback(std::string_view host);

}  // namespace perseus
