// An issuer of signed tokens for tests: it publishes its keys over HTTP, as OpenID Connect
// requires, and signs any claims with any header. It signs with OpenSSL alone, so it does not share
// code with the check that it tests. It is no OpenID Connect provider: it has no people and no
// flows.
#pragma once

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "perseus/cluster/http/test_server.h"

namespace perseus::issuers {

class TestIssuer {
 public:
  TestIssuer();
  ~TestIssuer();
  std::string url() const;

  enum class Kind { kRsa, kP256, kP384, kEd25519 };
  // Makes a key and publishes it.
  void AddKey(const std::string& id, Kind kind);
  // Signs no more with it, and publishes it no more.
  void RemoveKey(const std::string& id);
  // Makes a key that is never published.
  void AddSecretKey(const std::string& id, Kind kind);

  // A token with these claims, besides the usual ones: iss, sub "u-1", aud "perseus", iat, and exp
  // in ten minutes. `header` changes the header {"alg", "kid", "typ"}. A null removes a member.
  std::string Token(const std::string& key, const nlohmann::json& claims = {},
                    const nlohmann::json& header = {}) const;
  // Any header and claims, signed with HMAC-SHA-256.
  static std::string HmacToken(const nlohmann::json& header, const nlohmann::json& claims,
                               const std::string& secret);
  // The published public key, as PEM: the secret of the best known attack with HMAC.
  std::string PublicPem(const std::string& key) const;
  nlohmann::json Claims(const nlohmann::json& changes) const;
  std::string KeySetText() const;

  // How often the keys were read.
  int reads() const { return reads_; }
  enum class Mood { kAnswers, kFails, kHangs };
  void SetMood(Mood mood) { mood_ = mood; }

 private:
  struct Keys;
  std::shared_ptr<Keys> keys_;
  std::atomic<int> reads_ = 0;
  std::atomic<Mood> mood_ = Mood::kAnswers;
  std::unique_ptr<http::TestServer> server_;
};

}  // namespace perseus::issuers
