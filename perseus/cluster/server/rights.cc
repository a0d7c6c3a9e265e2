#include "perseus/cluster/server/rights.h"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>

#include "perseus/base/excerpt.h"
#include "perseus/base/random_id.h"

namespace perseus::server {
namespace {

constexpr std::string_view kBearer = "Bearer ";
constexpr std::size_t kSecretBytes = 32;

bool IsLoopbackHost(std::string_view address) {
  return address == "localhost" || address == "::1" || address == "[::1]" ||
         (address.starts_with("127.") &&
          address.find_first_not_of("0123456789.") == std::string_view::npos);
}

// Whether the request goes to "127.0.0.1:7410", "[::1]:7410" or "localhost", comes from this
// machine, and does not come from a web page.
bool IsFromThisMachine(const http::Request& request) {
  if (!request.Field("origin").empty() || !IsLoopbackHost(request.peer)) return false;
  std::string_view host = request.Field("host");
  const std::size_t port = host.rfind(':');
  if (port != std::string_view::npos && host.find(']', port) == std::string_view::npos) {
    host = host.substr(0, port);
  }
  return IsLoopbackHost(host);
}

Answer<Principal> Unknown(std::string detail) {
  return Refuse(401, "A valid token is required", std::move(detail),
                "send the field Authorization: Bearer TOKEN (perseus token create makes tokens)");
}

Answer<void> Forbid(std::string detail, std::string remedy) {
  return Refuse(403, "The token has no right to this", std::move(detail), std::move(remedy));
}

}  // namespace

Result<Principal::Scope> ParseScope(std::string_view text) {
  if (text == "operator") return Principal::Scope::kOperator;
  if (text == "agent") return Principal::Scope::kAgent;
  if (text == "job") return Principal::Scope::kJob;
  if (text == "read") return Principal::Scope::kRead;
  return Fail("{} is not a scope (expected operator, agent, job or read)", Excerpt(text));
}

std::string HashOfSecret(std::string_view secret) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  ::SHA256(reinterpret_cast<const unsigned char*>(secret.data()), secret.size(), digest.data());
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

std::string NewSecret() { return "perseus_" + RandomHex(kSecretBytes); }

Result<void> Rights::Load(store::Store& store) {
  PERSEUS_ASSIGN_OR_RETURN(auto tokens, store.ListTokens());
  auto loaded = std::make_shared<const std::vector<store::TokenRecord>>(std::move(tokens));
  const MutexLock lock(mutex_);
  tokens_ = std::move(loaded);
  return {};
}

Answer<Principal> Rights::Identify(const http::Request& request, store::Milliseconds now) const {
  std::shared_ptr<const std::vector<store::TokenRecord>> tokens;
  {
    const MutexLock lock(mutex_);
    tokens = tokens_;
  }
  if (tokens->empty() && without_ == WithoutTokens::kOpen) return Principal();
  if (tokens->empty() && without_ == WithoutTokens::kOpenHere) {
    if (IsFromThisMachine(request)) return Principal();
    return Refuse(403, "This request may come from a web page",
                  "while no tokens exist, the server accepts only programs of this machine",
                  "use http://127.0.0.1 or http://localhost, or create a token");
  }
  const std::string_view field = request.Field("authorization");
  if (field.empty()) return Unknown("the request has no token");
  if (!field.starts_with(kBearer)) return Unknown("the Authorization field has no bearer token");
  // The search compares hashes, so its time reveals nothing about the secret.
  const std::string hash = HashOfSecret(field.substr(kBearer.size()));
  const auto token = std::ranges::find(*tokens, hash, &store::TokenRecord::hash);
  if (token == tokens->end()) return Unknown("the token does not exist");
  if (token->expires != 0 && token->expires <= now) {
    return Unknown(fmt::format("token {} has expired", token->id));
  }
  const auto scope = ParseScope(token->scope);
  if (!scope) return Unknown("a newer version of the server created the token");
  return Principal{*scope, token->job, token->id};
}

Answer<void> Rights::Check(const Principal& principal, Access access, std::string_view job_key) {
  using Scope = Principal::Scope;
  const bool is_other_job = principal.scope == Scope::kJob && principal.job != job_key;
  switch (access) {
    case Access::kPublic:
      return {};
    case Access::kRead:
      if (!is_other_job) return {};
      return Forbid("the token is valid for another job only",
                    "use the token of this job, or a token of scope read");
    case Access::kReadAll:
      if (principal.scope != Scope::kJob) return {};
      return Forbid("the token is valid for one job only", "use a token of scope read");
    case Access::kJob:
      if (principal.scope == Scope::kOperator ||
          (principal.scope == Scope::kJob && !is_other_job)) {
        return {};
      }
      return Forbid(
          "a change of this job requires the token of the job or a token of scope operator",
          "use one of these tokens");
    case Access::kNode:
      if (principal.scope == Scope::kOperator || principal.scope == Scope::kAgent) return {};
      return Forbid("the endpoints of nodes require a token of scope agent", "use such a token");
    case Access::kOperator:
      if (principal.scope == Scope::kOperator) return {};
      return Forbid("this requires a token of scope operator", "use such a token");
  }
  return {};
}

}  // namespace perseus::server
