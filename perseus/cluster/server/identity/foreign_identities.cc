#include "perseus/cluster/server/identity/foreign_identities.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "perseus/base/excerpt.h"
#include "perseus/cluster/http/offload.h"
#include "perseus/cluster/munge/credential.h"
#include "perseus/cluster/server/identity/granted_identity.h"

namespace perseus::server {
namespace {

constexpr std::string_view kOwnToken = "Bearer perseus_";

tl::unexpected<http::Problem> RefuseUser(std::string why, std::string remedy) {
  return Refuse(401, "A valid user is required", std::move(why), std::move(remedy));
}

bool IsFromProxy(const ProxySettings& proxy, const http::Request& request) {
  if (request.is_over_unix_socket) return proxy.socket.has_value();
  return !request.certificate.empty() &&
         std::ranges::find(proxy.certificates, request.certificate) != proxy.certificates.end();
}

// Splits "team-a, team-b".
std::vector<std::string> SplitGroups(std::string_view text) {
  std::vector<std::string> groups;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    std::string_view group = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    group.remove_prefix(std::min(group.find_first_not_of(' '), group.size()));
    group = group.substr(0, group.find_last_not_of(' ') + 1);
    if (!group.empty()) groups.emplace_back(group);
  }
  return groups;
}

// The proxy adds the user to every request of the person's browser, even if a page of another site
// caused the request. But then the browser says in the header where the request comes from.
bool MayBeOfAnotherSite(const http::Request& request) {
  const bool is_change = request.method != "GET" && request.method != "HEAD";
  return is_change && !request.Field("origin").empty() &&
         request.Field("sec-fetch-site") != "same-origin";
}

}  // namespace

ForeignIdentities::ForeignIdentities(IdentitySettings settings, TrustChanged trust_changed)
    : trust_changed_(std::move(trust_changed)), settings_(std::move(settings)) {
  UpdateTrust();
}

ForeignIdentities::~ForeignIdentities() { munge_.join(); }

void ForeignIdentities::Replace(IdentitySettings settings) {
  if (settings.proxy != settings_.proxy) ++proxy_version_;
  if (settings.munge != settings_.munge) ++munge_version_;
  settings_ = std::move(settings);
  UpdateTrust();
}

std::string ForeignIdentities::TrustOfProxy() const {
  return fmt::format("proxy {}", proxy_version_);
}

std::string ForeignIdentities::TrustOfMunge() const {
  return fmt::format("munge {}", munge_version_);
}

void ForeignIdentities::UpdateTrust() {
  std::set<std::string> trust;
  if (settings_.proxy) trust.insert(TrustOfProxy());
  if (settings_.munge) trust.insert(TrustOfMunge());
  trust_changed_(std::move(trust));
}

std::optional<Answer<Identity>> ForeignIdentities::FromProxy(const http::Request& request,
                                                             Milliseconds now) const {
  if (!settings_.proxy) return std::nullopt;
  const ProxySettings& proxy = *settings_.proxy;
  const bool is_proxy = IsFromProxy(proxy, request);
  const std::string_view authorization = request.Field("authorization");
  const bool has_user = request.fields.contains(proxy.user_header);
  if (!has_user && !request.fields.contains(proxy.groups_header)) {
    // If the request continued without a user, a token with a pattern for the certificate of the
    // proxy would be valid for everybody.
    if (!is_proxy || !authorization.empty()) return std::nullopt;
    return RefuseUser(fmt::format("the proxy names no user in {}", proxy.user_header),
                      "log in at the proxy, or give a token");
  }
  if (!is_proxy) {
    return RefuseUser(
        fmt::format("{} and {} count only from the proxy", proxy.user_header, proxy.groups_header),
        "leave them out, or let the proxy use the socket or a certificate of [proxy]");
  }
  for (const std::string& name : {proxy.user_header, proxy.groups_header}) {
    if (!request.repeated.contains(name)) continue;
    return RefuseUser(fmt::format("the request has {} twice", name),
                      "let the proxy replace the field, and not add to it");
  }
  if (authorization.starts_with(kOwnToken)) {
    return RefuseUser("the request has a user of the proxy and a token of this server",
                      "leave out the token, or send it past the proxy");
  }
  const std::string user(request.Field(proxy.user_header));
  if (!IsUser(user)) {
    return RefuseUser(
        fmt::format("{} in {} is not a user", Excerpt(user), proxy.user_header),
        "let the proxy send 1 to 200 printable ASCII characters, without , * \" and \\");
  }
  if (MayBeOfAnotherSite(request)) {
    return Refuse(403, "This request may come from a web page",
                  "a page of another site may have sent this change in the name of the user",
                  "send it from a page of this site, or without the field Origin");
  }
  auto identity = PersonIdentity(
      proxy.grants, user, SplitGroups(request.Field(proxy.groups_header)), now + kPersonLasts);
  if (identity) identity->trust = TrustOfProxy();
  return identity;
}

boost::asio::awaitable<Answer<Identity>> ForeignIdentities::CheckMunge(std::string credential,
                                                                       std::string node,
                                                                       Milliseconds now) {
  if (!settings_.munge) {
    co_return Refuse(401, "A valid token is required", "the server does not accept munge",
                     "use a join token, or add [munge] to the file of serve --identities");
  }
  const MungeSettings munge = *settings_.munge;
  const std::string trust = TrustOfMunge();
  const auto decode = [&] { return munge::Decode(credential, munge.socket); };
  const Result<munge::Decoded> decoded = co_await http::Offload(munge_, decode);
  if (!decoded && decoded.error().kind == ErrorKind::kSystem) {
    co_return Refuse(503, "The server cannot do this now", decoded.error().Message(),
                     "start munged on the server's host, or use a join token");
  }
  if (!decoded) {
    co_return Refuse(401, "A valid token is required", decoded.error().Message(),
                     "encode another credential for each request");
  }
  if (decoded->text != munge::JoinText(munge.audience, node)) {
    co_return Refuse(401, "A valid token is required",
                     "the munge credential is for another node or another server",
                     fmt::format("encode: {}", munge::JoinText(munge.audience, node)));
  }
  auto identity = MungeIdentity(munge, decoded->user, now);
  if (identity) identity->trust = trust;
  co_return identity;
}

}  // namespace perseus::server
