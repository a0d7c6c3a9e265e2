#include "perseus/cluster/issuers/provider.h"

#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/file.h"
#include "perseus/base/host_port.h"
#include "perseus/base/json_file.h"
#include "perseus/cluster/issuers/signed_token.h"

namespace perseus::issuers {
namespace {

constexpr std::size_t kLongestAnswer = 512 << 10;
constexpr int kDeepestAnswer = 16;
constexpr std::size_t kMostAnswerValues = 20'000;
constexpr int kOkStatus = 200;

}  // namespace

Result<ProviderUrl> ParseProviderUrl(std::string_view url) {
  const auto fail = [url] {
    return Fail("{} is not the address of an issuer (expected https://host or https://host/path)",
                Excerpt(url));
  };
  const bool is_tls = url.starts_with("https://");
  if (!is_tls && !url.starts_with("http://")) return fail();
  std::string_view rest = url.substr(url.find("//") + 2);
  if (rest.find_first_of("@?# \\") != std::string_view::npos) return fail();
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string host(rest.substr(0, slash));
  const std::string_view path = rest.substr(slash);
  const bool has_port = host.rfind(':') != std::string::npos && !host.ends_with(']');
  if (!has_port) host += is_tls ? ":443" : ":80";
  const auto at = ParseHostPort(host);
  if (!at || at->host.empty() || at->port == 0) return fail();
  if (!is_tls && !IsLoopback(at->host)) {
    return Fail("{} is not encrypted, so others could replace its answers (use https)",
                Excerpt(url));
  }
  return ProviderUrl{(is_tls ? "https://" : "http://") + host, std::string(path)};
}

Result<http::Response> Ask(const std::string& url, const ProviderAccess& access,
                           const std::string& form) {
  // A query may follow the path. It is no part of the address of an issuer.
  const std::size_t query = std::min(url.find('?'), url.size());
  PERSEUS_ASSIGN_OR_RETURN(const auto at, ParseProviderUrl(url.substr(0, query)));
  http::ClientOptions options{.server = at.origin,
                              .authority = access.authority,
                              .timeout = access.timeout,
                              .longest_body = kLongestAnswer};
  if (!access.bearer_file.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(options.token, ReadFile(access.bearer_file));
    while (options.token.ends_with('\n')) options.token.pop_back();
  }
  PERSEUS_ASSIGN_OR_RETURN(auto client, http::Client::Create(std::move(options)));
  return client.Send({.method = form.empty() ? "GET" : "POST",
                      .target = (at.path.empty() ? "/" : at.path) + url.substr(query),
                      .body = form,
                      .content_type = "application/x-www-form-urlencoded",
                      .fields = {{"accept", "application/json"}}});
}

Result<std::string> Fetch(const std::string& url, const ProviderAccess& access) {
  PERSEUS_ASSIGN_OR_RETURN(auto answer, Ask(url, access));
  if (answer.status != kOkStatus) {
    return FailAs(ErrorKind::kSystem,
                  "{} answered with status {} (is it the address of the issuer?)", url,
                  answer.status);
  }
  return std::move(answer.body);
}

Result<Provider> Discover(const std::string& issuer, const ProviderAccess& access) {
  const std::string base = issuer.ends_with('/') ? issuer.substr(0, issuer.size() - 1) : issuer;
  const std::string url = base + "/.well-known/openid-configuration";
  PERSEUS_ASSIGN_OR_RETURN(const auto text, Fetch(url, access));
  nlohmann::json document;
  try {
    document = json_file::Parse(text, {.deepest = kDeepestAnswer, .values = kMostAnswerValues});
  } catch (const json_file::Failure& failure) {
    return FailAs(ErrorKind::kSystem, "{} is not JSON{} (is it the address of the issuer?)", url,
                  failure.message);
  }
  if (!document.is_object() || TextClaim(document, "issuer") != issuer) {
    return FailAs(ErrorKind::kSystem,
                  "{} is about the issuer {}, not {} (the address must be exactly the one that the "
                  "provider names)",
                  url, Excerpt(document.is_object() ? TextClaim(document, "issuer") : ""), issuer);
  }
  Provider provider{.keys_url = TextClaim(document, "jwks_uri"),
                    .device_url = TextClaim(document, "device_authorization_endpoint"),
                    .token_url = TextClaim(document, "token_endpoint"),
                    .revocation_url = TextClaim(document, "revocation_endpoint")};
  return provider;
}

}  // namespace perseus::issuers
