// Identifies callers by their token or client certificate (docs/identity.md).
//
// Thread safe.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/cluster/http/message.h"
#include "perseus/cluster/server/identity/answer.h"
#include "perseus/cluster/server/identity/identity.h"
#include "perseus/cluster/store/store.h"

namespace perseus::server {

// Returns the SHA-256 of the secret in hexadecimal.
std::string HashOfSecret(std::string_view secret);
// Returns the secret of a new token: "perseus_" and 256 random bits.
std::string NewSecret();

inline constexpr std::size_t kMaxTokenNameBytes = 200;
// Whether this is one line of at most kMaxTokenNameBytes, or empty.
bool IsTokenName(std::string_view name);

class Rights {
 public:
  // Says who is an operator while no tokens exist. kOpen: everybody. kClosed: nobody.
  // kOpenToOwnUser: programs on this machine that run as the server's user or as root, and that use
  // localhost or a loopback address in the URL. The check of the URL excludes web pages in a
  // browser on this machine, because a page may use its own host name for the loopback address (DNS
  // rebinding).
  enum class WithoutTokens { kOpen, kOpenToOwnUser, kClosed };
  explicit Rights(WithoutTokens without) : without_(without) {}

  // Reads the tokens from the store. On failure, the old tokens remain valid.
  Result<void> Load(store::Store& store);
  // Adds or replaces a token that is now in the store. This is cheaper than Load.
  void Put(const store::TokenRecord& token);

  // Makes the foreign identities with these values of `trust` valid until they expire. Makes all
  // other foreign identities invalid.
  void SetTrust(std::set<std::string> trust);
  // From now on, nobody is an operator while no tokens exist.
  void Close();

  // Returns the caller of a request. Fails with 401 if the request has no valid token or
  // certificate. A token takes precedence over a client certificate.
  Answer<Identity> Identify(const http::Request& request, Milliseconds now) const;

  // Whether a caller that Identify returned earlier is still valid. The token was not revoked, and
  // neither the token nor the secret has expired. For event streams and other long answers.
  bool IsValid(const Identity& identity, Milliseconds now) const;
  // Whether tokens have changed, or a token has expired, since the last call of this function. If
  // so, IsValid may return another value. This function is cheap.
  bool TakeChange(Milliseconds now);

 private:
  struct Tokens {
    std::unordered_map<std::string, store::TokenRecord> by_id;
    // Token ids by hash. Contains previous hashes, too.
    std::unordered_map<std::string, std::string> by_hash;
    std::vector<std::string> certificates;  // Ids of tokens with a certificate.
  };
  Answer<Identity> IdentifySecret(std::string_view secret, Milliseconds now) const;
  // Returns null if no token has a pattern for the certificate.
  const store::TokenRecord* FindByCertificate(const std::string& name) const
      PERSEUS_REQUIRES(mutex_);
  static Answer<Identity> IdentityOf(const store::TokenRecord& token, const std::string& presented,
                                     const std::string& certificate, Milliseconds now);
  static void Insert(Tokens& tokens, const store::TokenRecord& token);

  // Held from the read in the store until the tokens are changed here. Locked before mutex_.
  // Without this lock, a slow Load could undo a change that another thread has made in the
  // meantime. It would restore the old secret of a token, or a revoked token.
  Mutex changing_;
  mutable Mutex mutex_;
  WithoutTokens without_ PERSEUS_GUARDED_BY(mutex_);
  std::set<std::string> trust_ PERSEUS_GUARDED_BY(mutex_);
  Tokens tokens_ PERSEUS_GUARDED_BY(mutex_);
  bool has_changed_ PERSEUS_GUARDED_BY(mutex_) = true;
  // When the next token or old secret expires. 0: never.
  Milliseconds next_expiry_ PERSEUS_GUARDED_BY(mutex_) = 0;
  // The expiries of the foreign identities for which IsValid was called: the callers of streams.
  mutable std::set<Milliseconds> foreign_expiries_ PERSEUS_GUARDED_BY(mutex_);
};

}  // namespace perseus::server
