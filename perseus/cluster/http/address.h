// Parses addresses ("127.0.0.1:7410") and URLs of servers ("https://perseus:7410").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"

namespace perseus::http {

struct HostPort {
  std::string host;  // "127.0.0.1", "::1", "perseus"
  std::uint16_t port = 0;
};
// Parses "host:port" or "[::1]:port". kInput if the text is neither.
Result<HostPort> ParseHostPort(std::string_view text);

struct ServerUrl {
  std::string text;  // "https://perseus:7410"
  bool is_tls = false;
  HostPort at;
};
// Parses one or more comma-separated URLs. The default port is 7410.
Result<std::vector<ServerUrl>> ParseServerUrls(std::string_view text);

}  // namespace perseus::http
