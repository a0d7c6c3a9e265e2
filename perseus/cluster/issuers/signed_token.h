// A signed token (a JWT, RFC 7519, in the compact form of RFC 7515) as it arrived. Nothing in it is
// true before KeySet::Verify and CheckClaims have accepted it.
//
// Only for .cc files that link nlohmann_json.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"

namespace perseus::issuers {

// Longer tokens are refused unread.
inline constexpr std::size_t kMostTokenBytes = 8 << 10;

// What a key must be to check an algorithm.
enum class KeyType { kRsa, kP256, kP384, kP521 };

struct SignedToken {
  std::string text;
  KeyType key_type = KeyType::kRsa;
  std::string algorithm;  // "RS256"
  std::string key_id;     // May be empty.
  nlohmann::json claims;  // An object.
};

// Whether a bearer token may be a signed token: it has three parts. The server's own tokens do not.
bool LooksSigned(std::string_view text);

// Fails (kInput) if the text is no signed token, or if its algorithm is not one of RS256 to RS512,
// PS256 to PS512, and ES256 to ES512. So "none" and HMAC are refused before any key is looked up.
Result<SignedToken> ReadSignedToken(std::string_view text);

// Milliseconds since 1970.
using Milliseconds = std::int64_t;

struct ClaimRules {
  std::string issuer;
  std::string audience;
  Milliseconds leeway = 0;  // How much clocks may differ.
};

// Checks iss, aud, exp, nbf and iat (RFC 7519), and that sub is present. Returns when the token
// ends, with the leeway. Fails (kInput) with the claim that is wrong.
Result<Milliseconds> CheckClaims(const nlohmann::json& claims, const ClaimRules& rules,
                                 Milliseconds now);

// The claim `name`; or, if there is none, the member at this path with slashes
// ("kubernetes.io/node/name"). Null if absent.
const nlohmann::json* FindClaim(const nlohmann::json& claims, std::string_view name);
// Empty if it is absent or no text.
std::string TextClaim(const nlohmann::json& claims, std::string_view name);
// A list of texts, or one text. Empty if it is neither.
std::vector<std::string> ListClaim(const nlohmann::json& claims, std::string_view name);

}  // namespace perseus::issuers
