#include "perseus/base/host_port.h"

#include <algorithm>

#include "perseus/base/number.h"

namespace perseus {

Result<HostPort> ParseHostPort(std::string_view text) {
  const auto bad = [&] {
    return Fail("{} is not an address (expected HOST:PORT, such as 127.0.0.1:7410)", text);
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad();
  HostPort parsed;
  parsed.host = text.substr(0, colon);
  if (parsed.host.size() > 2 && parsed.host.front() == '[' && parsed.host.back() == ']') {
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  } else if (parsed.host.find(':') != std::string::npos) {
    return bad();
  }
  const bool is_host =
      !parsed.host.empty() && std::none_of(parsed.host.begin(), parsed.host.end(), [](char c) {
        return static_cast<unsigned char>(c) <= ' ' ||
               std::string_view("/?#@[]").find(c) != std::string_view::npos;
      });
  const auto port = ParseNumber<std::uint16_t>(text.substr(colon + 1));
  if (!is_host || !port) return bad();
  parsed.port = *port;
  return parsed;
}

bool IsLoopback(std::string_view host) {
  return host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos);
}

}  // namespace perseus
