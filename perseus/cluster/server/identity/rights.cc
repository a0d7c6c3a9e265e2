#include "perseus/cluster/server/identity/rights.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/host_port.h"
#include "perseus/base/random_id.h"
#include "perseus/cluster/store/audit.h"

namespace perseus::server {
namespace {

constexpr std::string_view kBearer = "Bearer ";
constexpr std::size_t kSecretBytes = 32;

// Whether the request comes from this machine, but not from a web page, and goes to an address such
// as "127.0.0.1:7410", "[::1]:7410" or "localhost".
bool IsFromThisMachine(const http::Request& request) {
  // A browser or a proxy sends these fields, for somebody else.
  for (const char* field : {"origin", "forwarded", "x-forwarded-for", "via"}) {
    if (!request.Field(field).empty()) return false;
  }
  if (!IsLoopback(request.peer)) return false;
  std::string_view host = request.Field("host");
  const std::size_t port = host.rfind(':');
  if (port != std::string_view::npos && host.find(']', port) == std::string_view::npos) {
    host = host.substr(0, port);
  }
  return host == "[::1]" || IsLoopback(host);
}

// Whether the caller could also read the database of this server.
bool IsFromOwnUser(const http::Request& request) {
  return request.user == ::geteuid() || request.user == uid_t{0};
}

Answer<Identity> Unknown(std::string detail) {
  return Refuse(401, "A valid token is required", std::move(detail),
                "give a token: `token_file` or PERSEUS_TOKEN_FILE, or over HTTP the field "
                "Authorization: Bearer TOKEN; perseus token create makes tokens");
}

}  // namespace

std::string HashOfSecret(std::string_view secret) { return store::Sha256(secret); }
std::string NewSecret() { return "perseus_" + RandomHex(kSecretBytes); }

bool IsTokenName(std::string_view name) {
  return name.size() <= kMaxTokenNameBytes && (name.empty() || IsPrintable(name));
}

void Rights::Insert(Tokens& tokens, const store::TokenRecord& token) {
  if (!token.hash.empty()) tokens.by_hash[token.hash] = token.id;
  if (!token.previous_hash.empty()) tokens.by_hash[token.previous_hash] = token.id;
  if (!token.certificate.empty() && !tokens.by_id.contains(token.id)) {
    tokens.certificates.push_back(token.id);
  }
  tokens.by_id[token.id] = token;
}

Result<void> Rights::Load(store::Store& store) {
  const MutexLock only_one(changing_);
  PERSEUS_ASSIGN_OR_RETURN(const auto listed, store.ListTokens());
  Tokens loaded;
  for (const store::TokenRecord& token : listed) Insert(loaded, token);
  const MutexLock lock(mutex_);
  if (loaded.by_id == tokens_.by_id) return {};
  tokens_ = std::move(loaded);
  has_changed_ = true;
  return {};
}

void Rights::SetTrust(std::set<std::string> trust) {
  const MutexLock lock(mutex_);
  if (trust == trust_) return;
  trust_ = std::move(trust);
  has_changed_ = true;
}

void Rights::Close() {
  const MutexLock lock(mutex_);
  without_ = WithoutTokens::kClosed;
  has_changed_ = true;
}

void Rights::Put(const store::TokenRecord& token) {
  const MutexLock only_one(changing_);
  const MutexLock lock(mutex_);
  if (const auto old = tokens_.by_id.find(token.id); old != tokens_.by_id.end()) {
    tokens_.by_hash.erase(old->second.hash);
    tokens_.by_hash.erase(old->second.previous_hash);
  }
  Insert(tokens_, token);
  has_changed_ = true;
}

Answer<Identity> Rights::Identify(const http::Request& request, Milliseconds now) const {
  const std::string_view field = request.Field("authorization");
  {
    const MutexLock lock(mutex_);
    if (tokens_.by_id.empty() && without_ == WithoutTokens::kOpen) return Identity();
    if (tokens_.by_id.empty() && without_ == WithoutTokens::kOpenToOwnUser) {
      if (!IsFromThisMachine(request)) {
        return Refuse(403, "This request may come from a web page",
                      "while no tokens exist, the server accepts only programs of this machine",
                      "use http://127.0.0.1 or http://localhost, or create a token");
      }
      if (IsFromOwnUser(request)) return Identity();
      return Refuse(403, "This request comes from another user",
                    "while no tokens exist, the server accepts only programs of its own user and "
                    "of root",
                    "as this user or as root, create a token of scope operator (perseus token "
                    "create), and then tokens for the other users");
    }
    if (field.empty() && !request.certificate.empty()) {
      const store::TokenRecord* token = FindByCertificate(request.certificate);
      if (token != nullptr) return IdentityOf(*token, "", request.certificate, now);
    }
  }
  if (field.empty()) return Unknown("the request has no token");
  if (!field.starts_with(kBearer)) return Unknown("the Authorization field has no bearer token");
  return IdentifySecret(field.substr(kBearer.size()), now);
}

// The search compares hashes, so the time that it takes reveals nothing about the secret.
Answer<Identity> Rights::IdentifySecret(std::string_view secret, Milliseconds now) const {
  const std::string hash = HashOfSecret(secret);
  const MutexLock lock(mutex_);
  const auto id = tokens_.by_hash.find(hash);
  if (id == tokens_.by_hash.end()) return Unknown("the token does not exist");
  const store::TokenRecord& token = tokens_.by_id.at(id->second);
  if (token.hash != hash && token.previous_until <= now) {
    return Unknown(fmt::format("token {} was renewed, and this is its old secret", token.id));
  }
  return IdentityOf(token, hash, "", now);
}

// Uses the most specific pattern, which is the pattern with the most bytes.
const store::TokenRecord* Rights::FindByCertificate(const std::string& name) const {
  const store::TokenRecord* found = nullptr;
  for (const std::string& id : tokens_.certificates) {
    const store::TokenRecord& token = tokens_.by_id.at(id);
    if (!Matches(token.certificate, name)) continue;
    if (found == nullptr || found->certificate.size() < token.certificate.size()) found = &token;
  }
  return found;
}

Answer<Identity> Rights::IdentityOf(const store::TokenRecord& token, const std::string& presented,
                                    const std::string& certificate, Milliseconds now) {
  if (token.expires != 0 && token.expires <= now) {
    return Unknown(fmt::format("token {} has expired", token.id));
  }
  if (!token.scope) return Unknown("a newer version of the server created the token");
  Identity identity{.role = *token.scope,
                    .token = token.id,
                    .name = token.name,
                    .presented = presented,
                    .nodes = SplitLines(token.nodes),
                    .jobs = SplitLines(token.job),
                    .owners = SplitLines(token.owner),
                    .expires = token.expires};
  if (certificate.empty()) return identity;
  // If the token of an agent names no node, the agent is the node that its certificate names.
  if (identity.nodes.empty()) identity.nodes = {certificate};
  if (identity.name.empty()) identity.name = certificate;
  return identity;
}

bool Rights::IsValid(const Identity& identity, Milliseconds now) const {
  const MutexLock lock(mutex_);
  if (identity.is_foreign) {
    if (identity.expires <= now || !trust_.contains(identity.trust)) return false;
    foreign_expiries_.insert(identity.expires);
    return true;
  }
  if (identity.token.empty()) {
    return tokens_.by_id.empty() && without_ != WithoutTokens::kClosed;
  }
  const auto found = tokens_.by_id.find(identity.token);
  if (found == tokens_.by_id.end()) return false;
  const store::TokenRecord& token = found->second;
  const bool has_secret = identity.presented.empty() || identity.presented == token.hash ||
                          (identity.presented == token.previous_hash && token.previous_until > now);
  return has_secret && (token.expires == 0 || token.expires > now);
}

bool Rights::TakeChange(Milliseconds now) {
  const MutexLock lock(mutex_);
  bool has_expired = next_expiry_ != 0 && next_expiry_ <= now;
  while (!foreign_expiries_.empty() && *foreign_expiries_.begin() <= now) {
    foreign_expiries_.erase(foreign_expiries_.begin());
    has_expired = true;
  }
  if (!has_changed_ && !has_expired) return false;
  has_changed_ = false;
  next_expiry_ = 0;
  for (const auto& [id, token] : tokens_.by_id) {
    for (const Milliseconds end : {token.expires, token.previous_until}) {
      if (end > now) next_expiry_ = next_expiry_ == 0 ? end : std::min(next_expiry_, end);
    }
  }
  return true;
}

}  // namespace perseus::server
