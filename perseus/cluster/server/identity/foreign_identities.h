// Identifies callers without a token of this server: people by the header of a proxy, and nodes by
// munge credentials (docs/identity.md).
//
// An identity depends on the settings at the time when the caller was identified. These settings
// have a name (Identity::trust). When the settings are replaced, `trust_changed` receives the names
// that are still valid. So streams close if the settings that they depend on have changed. If a
// stream is still allowed, its client opens it again.
//
// Used only on the thread of the loop. Nothing here blocks it: a separate thread checks munge
// credentials.
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
  // anybody else, is repeated, cannot be a name, or comes with a token of this server. Fails with
  // 401 also for a request of the proxy without a user and without a token. Fails with 403 if
  // nothing is granted, or if a web page of another site may have caused a change. Returns nullopt
  // if the request has no such field, so that tokens and certificates are checked.
  std::optional<Answer<Identity>> FromProxy(const http::Request& request, Milliseconds now) const;
  // Returns the identity of a munge credential, which must be for this node. Fails with 401 and the
  // reason if it is not valid, and with 403 if its user is not allowed.
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
