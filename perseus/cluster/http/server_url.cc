#include "perseus/cluster/http/server_url.h"

#include <fmt/format.h>

#include <utility>

namespace perseus::http {
namespace {

constexpr std::string_view kDefaultPort = "7410";

Result<ServerUrl> ParseServerUrl(std::string_view text) {
  ServerUrl url;
  std::string_view rest = text;
  if (rest.starts_with("https://")) {
    url.is_tls = true;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    return Fail("{} is not the URL of a server (expected http://host:7410 or https://host:7410)",
                text);
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const bool has_port = rest.rfind(':') != std::string_view::npos && !rest.ends_with(']');
  auto at = ParseHostPort(has_port ? std::string(rest) : fmt::format("{}:{}", rest, kDefaultPort));
  if (!at || at->port == 0) {
    return Fail("{} is not the URL of a server (expected http://host:7410 or https://host:7410)",
                text);
  }
  url.text = fmt::format("{}://{}{}", url.is_tls ? "https" : "http", rest,
                         has_port ? "" : fmt::format(":{}", kDefaultPort));
  url.at = *std::move(at);
  return url;
}

}  // namespace

Result<std::vector<ServerUrl>> ParseServerUrls(std::string_view text) {
  std::vector<ServerUrl> urls;
  while (true) {
    const std::size_t comma = text.find(',');
    PERSEUS_ASSIGN_OR_RETURN(auto url, ParseServerUrl(text.substr(0, comma)));
    urls.push_back(std::move(url));
    if (comma == std::string_view::npos) return urls;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace perseus::http
