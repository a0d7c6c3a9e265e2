// Identifies callers by what others say about them: people by the header of a proxy, and nodes by
// munge credentials (docs/identity.md).
//
// What an identity depends on has a name (Identity::trust): the settings as they were when the
// caller was identified. When the settings are replaced, `trust_changed` receives the names that
// are still good. So streams close if the settings that they depend on have changed. One that is
// still allowed is opened again by its client.
//
// Only on the thread of the loop. Nothing here blocks it: munge credentials are checked on a thread
// of their own.
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
  // How long a person is identified for. An event stream of theirs ends after this time.
  static constexpr Milliseconds kPersonLasts = 3'600'000;

  using TrustChanged = std::function<void(std::set<std::string>)>;
  ForeignIdentities(IdentitySettings settings, TrustChanged trust_changed);
  // After the loop has stopped.
  ~ForeignIdentities();

  void Replace(IdentitySettings settings);

  // The person that the proxy names. 401 if a field of the proxy comes from anybody else, is
  // repeated or cannot be a name, or comes with a token of this server. 401 also for a request of
  // the proxy without a user and without a token. 403 if nothing is granted, or if a web page of
  // another site may have caused a change. Nothing if the request has no such field, so that tokens
  // and certificates count.
  std::optional<Answer<Identity>> FromProxy(const http::Request& request, Milliseconds now) const;
  // The identity of a munge credential, which must be for this node. 401 with the reason if it is
  // not valid, 403 if its user may not.
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
