#include "perseus/cluster/issuers/signed_token.h"

#include <cjose/base64.h>
#include <cjose/util.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/json_file.h"

namespace perseus::issuers {
namespace {

using nlohmann::json;

constexpr int kDeepestToken = 8;
constexpr std::size_t kMostValues = 4'000;
constexpr std::size_t kMostIdBytes = 200;
constexpr double kMillisecondsOfSecond = 1000;

constexpr std::array<std::pair<std::string_view, KeyType>, 9> kAlgorithms{{
    {"RS256", KeyType::kRsa},
    {"RS384", KeyType::kRsa},
    {"RS512", KeyType::kRsa},
    {"PS256", KeyType::kRsa},
    {"PS384", KeyType::kRsa},
    {"PS512", KeyType::kRsa},
    {"ES256", KeyType::kP256},
    {"ES384", KeyType::kP384},
    {"ES512", KeyType::kP521},
}};

Result<std::string> Decoded(std::string_view part) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
  cjose_err error{};
  std::uint8_t* bytes = nullptr;
  std::size_t size = 0;
  if (part.empty() || part.find_first_not_of(kLetters) != std::string_view::npos ||
      !cjose_base64url_decode(part.data(), part.size(), &bytes, &size, &error)) {
    return Fail("it is not in base64url");
  }
  std::string text(reinterpret_cast<const char*>(bytes), size);
  cjose_get_dealloc()(bytes);
  return text;
}

Result<json> ReadObject(std::string_view part) {
  PERSEUS_ASSIGN_OR_RETURN(const auto text, Decoded(part));
  try {
    json object = json_file::Parse(text, {.deepest = kDeepestToken, .values = kMostValues});
    if (object.is_object()) return object;
  } catch (const json_file::Failure& failure) {
    return Fail("it is not JSON{}", failure.message);
  }
  return Fail("it is not a JSON object");
}

// A time in seconds, which may have a fraction.
Result<std::optional<Milliseconds>> TimeClaim(const json& claims, const char* name) {
  constexpr double kMostSeconds = 1e12;
  const auto found = claims.find(name);
  if (found == claims.end()) return std::optional<Milliseconds>();
  if (!found->is_number()) return Fail("its {} is not a time", name);
  const double seconds = found->get<double>();
  if (!(seconds >= 0 && seconds <= kMostSeconds)) return Fail("its {} is not a time", name);
  return std::optional(static_cast<Milliseconds>(seconds * kMillisecondsOfSecond));
}

bool HasAudience(const json& claims, const std::string& audience) {
  const auto list = ListClaim(claims, "aud");
  return std::ranges::find(list, audience) != list.end();
}

}  // namespace

bool LooksSigned(std::string_view text) { return std::ranges::count(text, '.') == 2; }

Result<SignedToken> ReadSignedToken(std::string_view text) {
  if (text.size() > kMostTokenBytes) {
    return Fail("it has more than {} bytes", kMostTokenBytes);
  }
  if (!LooksSigned(text)) return Fail("it does not have three parts");
  const std::size_t first = text.find('.');
  const std::size_t second = text.rfind('.');
  PERSEUS_ASSIGN_OR_RETURN(const auto head, ReadObject(text.substr(0, first)));
  SignedToken token;
  token.text = text;
  token.algorithm = TextClaim(head, "alg");
  const auto* const known = std::ranges::find(kAlgorithms, std::string_view(token.algorithm),
                                              &decltype(kAlgorithms)::value_type::first);
  if (known == kAlgorithms.end()) {
    return Fail("the algorithm {} is not accepted (only RS, PS and ES with SHA-2)",
                Excerpt(token.algorithm));
  }
  token.key_type = known->second;
  // Extensions that must be understood (RFC 7515, 4.1.11), of which Perseus knows none.
  if (head.contains("crit")) return Fail("its header has critical extensions");
  token.key_id = TextClaim(head, "kid");
  if (token.key_id.size() > kMostIdBytes) return Fail("its key id is too long");
  PERSEUS_ASSIGN_OR_RETURN(token.claims, ReadObject(text.substr(first + 1, second - first - 1)));
  return token;
}

Result<Milliseconds> CheckClaims(const json& claims, const ClaimRules& rules, Milliseconds now) {
  if (TextClaim(claims, "iss") != rules.issuer) return Fail("its iss is not {}", rules.issuer);
  if (!HasAudience(claims, rules.audience)) {
    return Fail("it is not for this server: its aud is not {}", rules.audience);
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto expires, TimeClaim(claims, "exp"));
  if (!expires) return Fail("it never expires");
  if (*expires + rules.leeway <= now) return Fail("it has expired");
  for (const char* start : {"nbf", "iat"}) {
    PERSEUS_ASSIGN_OR_RETURN(const auto begins, TimeClaim(claims, start));
    if (begins && *begins - rules.leeway > now) {
      return Fail("it is not valid yet: its {} is in the future (do the clocks differ?)", start);
    }
  }
  const std::string subject = TextClaim(claims, "sub");
  if (subject.empty() || subject.size() > kMostIdBytes || !IsPrintable(subject)) {
    return Fail("its sub is not an id");
  }
  return *expires + rules.leeway;
}

const json* FindClaim(const json& claims, std::string_view name) {
  if (const auto whole = claims.find(name); whole != claims.end()) return &*whole;
  const json* at = &claims;
  while (!name.empty()) {
    const std::size_t end = std::min(name.find('/'), name.size());
    if (!at->is_object()) return nullptr;
    const auto found = at->find(name.substr(0, end));
    if (found == at->end()) return nullptr;
    at = &*found;
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return at;
}

std::string TextClaim(const json& claims, std::string_view name) {
  const json* claim = FindClaim(claims, name);
  return claim != nullptr && claim->is_string() ? claim->get<std::string>() : "";
}

std::vector<std::string> ListClaim(const json& claims, std::string_view name) {
  const json* claim = FindClaim(claims, name);
  if (claim == nullptr) return {};
  if (claim->is_string()) return {claim->get<std::string>()};
  if (!claim->is_array()) return {};
  std::vector<std::string> list;
  for (const json& element : *claim) {
    if (element.is_string()) list.push_back(element.get<std::string>());
  }
  return list;
}

}  // namespace perseus::issuers
