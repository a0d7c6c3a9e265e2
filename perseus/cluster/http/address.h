// "127.0.0.1:7410" and "https://perseus:7410", taken apart.
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
// "host:port", "[::1]:port". kInput for what is none.
Result<HostPort> ParseHostPort(std::string_view text);

struct ServerUrl {
  std::string text;  // "https://perseus:7410"
  bool is_tls = false;
  HostPort at;
};
// Of one or more URLs with commas in between. Without a port: 7410.
Result<std::vector<ServerUrl>> ParseServerUrls(std::string_view text);

}  // namespace perseus::http
