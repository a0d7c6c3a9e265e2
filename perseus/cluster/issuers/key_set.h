// The public keys of an issuer (a JWK set, RFC 7517), and the check of signatures with them.
//
// The library cjose reads keys and checks signatures. Its choice of a key type follows the header
// of the token, so this class first requires that the algorithm, the type and the curve of the key
// match, and that the signature has the one length of its algorithm.
//
// Copies share the keys. Verify is for one thread at a time, because cjose counts references to a
// key without a lock.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/issuers/signed_token.h"

namespace perseus::issuers {

class KeySet {
 public:
  // Leaves out keys that cannot check signatures of people's tokens: symmetric keys, keys for
  // encryption, RSA keys of less than 2048 or more than 8192 bits, and unknown types. Fails
  // (kInput) if the text is no key set, or if no key is left.
  static Result<KeySet> Read(std::string_view text);

  // Whether the set has a key for the token: with its key id; or, if the token has none, the only
  // key of its type.
  bool HasKeyFor(const SignedToken& token) const { return Find(token) != nullptr; }
  // Returns the name of the key (see Names). Fails (kInput) if there is no such key, or if the
  // signature is wrong.
  Result<std::string> Verify(const SignedToken& token) const;

  // A name for each key, made of the key itself: another key has another name, whatever its id.
  std::vector<std::string> Names() const;

  std::size_t size() const { return keys_.size(); }

 private:
  struct Key {
    std::string id;
    std::string algorithm;  // Empty: any of its type.
    std::string name;
    KeyType type = KeyType::kRsa;
    std::size_t signature_bytes = 0;
    std::shared_ptr<void> key;  // A cjose_jwk_t.
  };
  const Key* Find(const SignedToken& token) const;

  std::vector<Key> keys_;
};

}  // namespace perseus::issuers
