#include "perseus/cluster/issuers/key_set.h"

#include <cjose/jwk.h>
#include <cjose/jws.h>

#include <optional>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/json_file.h"

namespace perseus::issuers {
namespace {

using nlohmann::json;

constexpr int kDeepestKeySet = 6;
constexpr std::size_t kMostKeys = 100;
constexpr std::size_t kMostKeySetValues = 10'000;
constexpr std::size_t kLeastRsaBits = 2048;
constexpr std::size_t kMostRsaBits = 8192;

std::optional<KeyType> TypeOf(const json& key) {
  const std::string type = TextClaim(key, "kty");
  const std::string curve = TextClaim(key, "crv");
  if (type == "RSA") return KeyType::kRsa;
  if (type != "EC") return std::nullopt;
  if (curve == "P-256") return KeyType::kP256;
  if (curve == "P-384") return KeyType::kP384;
  if (curve == "P-521") return KeyType::kP521;
  return std::nullopt;
}

// Of r and s together.
std::size_t SignatureBytes(KeyType type, std::size_t key_bits) {
  constexpr std::size_t kP256Bytes = 64;
  constexpr std::size_t kP384Bytes = 96;
  constexpr std::size_t kP521Bytes = 132;
  switch (type) {
    case KeyType::kP256:
      return kP256Bytes;
    case KeyType::kP384:
      return kP384Bytes;
    case KeyType::kP521:
      return kP521Bytes;
    case KeyType::kRsa:
      break;
  }
  return (key_bits + 7) / 8;
}

// The members that RFC 7638 names for RSA and EC keys.
std::string NameOf(const json& key) {
  std::string name;
  for (const char* member : {"kty", "crv", "x", "y", "e", "n"}) {
    name += TextClaim(key, member) + ".";
  }
  return name;
}

// Of base64url without padding.
std::size_t DecodedBytes(std::size_t letters) { return letters * 3 / 4; }

}  // namespace

Result<KeySet> KeySet::Read(std::string_view text) {
  json set;
  try {
    set = json_file::Parse(text, {.deepest = kDeepestKeySet, .values = kMostKeySetValues});
  } catch (const json_file::Failure& failure) {
    return Fail("the key set is not JSON{}", failure.message);
  }
  const json* list = set.is_object() ? FindClaim(set, "keys") : nullptr;
  if (list == nullptr || !list->is_array() || list->size() > kMostKeys) {
    return Fail("the answer is not a key set (expected an object with \"keys\", of at most {})",
                kMostKeys);
  }
  KeySet keys;
  for (const json& listed : *list) {
    if (!listed.is_object()) continue;
    const auto type = TypeOf(listed);
    const std::string use = TextClaim(listed, "use");
    if (!type || (!use.empty() && use != "sig")) continue;
    const std::string one = listed.dump();
    cjose_err error{};
    std::shared_ptr<cjose_jwk_t> key(cjose_jwk_import(one.data(), one.size(), &error),
                                     [](cjose_jwk_t* gone) {
                                       if (gone != nullptr) cjose_jwk_release(gone);
                                     });
    if (!key) continue;
    const std::size_t bits = cjose_jwk_get_keysize(key.get(), &error);
    if (*type == KeyType::kRsa && (bits < kLeastRsaBits || bits > kMostRsaBits)) continue;
    keys.keys_.push_back({.id = TextClaim(listed, "kid"),
                          .algorithm = TextClaim(listed, "alg"),
                          .name = NameOf(listed),
                          .type = *type,
                          .signature_bytes = SignatureBytes(*type, bits),
                          .key = std::move(key)});
  }
  if (keys.keys_.empty())
    return Fail("the key set has no key for signatures (RSA, P-256 to P-521)");
  return keys;
}

const KeySet::Key* KeySet::Find(const SignedToken& token) const {
  const Key* found = nullptr;
  for (const Key& key : keys_) {
    const bool fits = key.type == token.key_type &&
                      (key.algorithm.empty() || key.algorithm == token.algorithm) &&
                      (token.key_id.empty() || key.id == token.key_id);
    if (!fits) continue;
    // Without a key id, a second key of this type makes the choice unclear.
    if (found != nullptr) return nullptr;
    found = &key;
  }
  return found;
}

Result<std::string> KeySet::Verify(const SignedToken& token) const {
  const Key* key = Find(token);
  if (key == nullptr) {
    return Fail("its issuer has no key {} for {}", Excerpt(token.key_id), token.algorithm);
  }
  const std::size_t letters = token.text.size() - token.text.rfind('.') - 1;
  cjose_err error{};
  const std::unique_ptr<cjose_jws_t, void (*)(cjose_jws_t*)> parsed(
      cjose_jws_import(token.text.data(), token.text.size(), &error), cjose_jws_release);
  const bool is_signed =
      parsed && DecodedBytes(letters) == key->signature_bytes &&
      cjose_jws_verify(parsed.get(), static_cast<cjose_jwk_t*>(key->key.get()), &error);
  if (!is_signed) return Fail("its signature is wrong");
  return key->name;
}

std::vector<std::string> KeySet::Names() const {
  std::vector<std::string> names;
  for (const Key& key : keys_) names.push_back(key.name);
  return names;
}

}  // namespace perseus::issuers
