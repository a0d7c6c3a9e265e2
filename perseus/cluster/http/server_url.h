// Parses URLs of servers ("https://perseus:7410").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/host_port.h"
#include "perseus/base/result.h"

namespace perseus::http {

struct ServerUrl {
  std::string text;  // "https://perseus:7410"
  bool is_tls = false;
  HostPort at;
};
// Parses one or more comma-separated URLs. The default port is 7410.
Result<std::vector<ServerUrl>> ParseServerUrls(std::string_view text);

}  // namespace perseus::http
