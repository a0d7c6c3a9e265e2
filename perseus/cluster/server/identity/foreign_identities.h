// Identifies callers without a token of this server: people by the header of a proxy, and nodes by
// munge credentials (docs/identity.md).
//
// An identity depends on the settings at the time when the caller was identified. Each version of
// the settings has a name (Identity::trust). When the settings are replaced, `trust_changed`
// receives the names that are still valid. So a stream closes if the settings that it depends on
// have changed. If the stream is still allowed, its client opens it again.
//
// Used only on the thread of the loop. No function blocks the loop, because a separate thread
// checks munge credentials.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "perseus/cluster/http/message.h"
#include "perseus/cluster/server/identity/answer.h"
#include "perseus/cluster/server/identity/identity.h"
#include "perseus/cluster/server/identity/identity_settings.h"

namespace perseus::server {

class ForeignIdentities {
 public:
  // How long a person stays identified. The person's event streams end after this time.
  static constexpr Milliseconds kPersonLasts = 3'600'000;

  using TrustChanged = std::function<void(std::set<std::string>)>;
  ForeignIdentities(IdentitySettings settings, TrustChanged trust_changed);
  // Call this after the loop has stopped.
  ~ForeignIdentities();

  void Replace(IdentitySettings settings);

  // Returns the person that the proxy names. Fails with 401 if a field of the proxy comes from
  // another client, is repeated, is not a valid name, or comes together with a token of this
  // server. Also fails with 401 if a request of the proxy has neither a user nor a token. Fails
  // with 403 if the person has no rights. Fails with 403 also for a change that a web page of
  // another site may have caused. Returns nullopt if the request has no such field. Then the caller
  // checks tokens and certificates.
  std::optional<Answer<Identity>> FromProxy(const http::Request& request, Milliseconds now) const;
  // Returns the identity of a munge credential, which must be for this node. Fails with 401 and the
  // reason if the credential is not valid. Fails with 403 if the user of the credential is not
  // allowed.
  boost::asio::awaitable<Answer<Identity>> CheckMunge(std::string credential, std::string node,
                                                      Milliseconds now);

 private:
  std::string TrustOfProxy() const;
  std::string TrustOfMunge() const;
  void UpdateTrust();

  const TrustChanged trust_changed_;
  IdentitySettings settings_;
  std::uint64_t proxy_version_ = 0;
  std::uint64_t munge_version_ = 0;
  boost::asio::thread_pool munge_{1};
};

}  // namespace perseus::server
