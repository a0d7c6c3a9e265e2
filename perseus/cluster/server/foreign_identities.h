// Identifies callers by what others have signed: tokens of trusted issuers, and munge credentials
// (docs/identity.md).
//
//                       known ──► Identity
//   signed token ──► issuer ──► key? ──► signature (own thread) ──► claims ──► grants ──► Identity
//                                │ unknown
//                                └──► waits for the issuer's thread, at most kKeysWait
//
// What an identity depends on has a name (Identity::trust): the settings of its issuer, as they
// were when the token was checked, and the key. When the settings are replaced or the keys are
// read, `trust_changed` receives the names that are still good. So the streams of a removed issuer,
// a changed grant or a withdrawn key close. One that is still allowed is opened again by its
// client.
//
// Only on the thread of the loop. Nothing here blocks it: signatures are checked on one thread,
// munge credentials on another one, and each issuer has a thread that reads its keys.
#pragma once

#include <spdlog/logger.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "perseus/cluster/issuers/issuer_keys.h"
#include "perseus/cluster/issuers/settings.h"
#include "perseus/cluster/issuers/signed_token.h"
#include "perseus/cluster/server/answer.h"
#include "perseus/cluster/server/identity.h"

namespace perseus::server {

class ForeignIdentities {
 public:
  static constexpr std::chrono::milliseconds kKeysWait{3'000};

  // `log` receives when the keys of an issuer cannot be read, and when they can again.
  using TrustChanged = std::function<void(std::set<std::string>)>;
  ForeignIdentities(boost::asio::io_context& loop, issuers::Settings settings,
                    const issuers::IssuerKeys::Pace& pace, TrustChanged trust_changed,
                    spdlog::logger& log);
  // After the loop has stopped.
  ~ForeignIdentities();

  // Replaces all settings. Keeps the keys of issuers whose keys are read as before, and reads them
  // again soon.
  void Replace(issuers::Settings settings);

  // The identity of a token that was checked before and is still valid.
  std::optional<Identity> Known(std::string_view token, store::Milliseconds now) const;
  // 401 with the reason if the token is not valid, 403 if nothing is granted to it, 503 if the keys
  // of its issuer were never read.
  boost::asio::awaitable<Answer<Identity>> CheckToken(std::string token, store::Milliseconds now);
  // The same for a munge credential, which must be for this node.
  boost::asio::awaitable<Answer<Identity>> CheckMunge(std::string credential, std::string node,
                                                      store::Milliseconds now);

  const issuers::Settings& settings() const { return settings_; }

 private:
  using Waiting = std::set<boost::asio::steady_timer*>;
  struct Issuer {
    std::shared_ptr<const issuers::IssuerSettings> settings;
    std::uint64_t version = 0;  // Of the settings. Never used again.
    std::uint64_t reader = 0;   // Which keys. Never used again.
    bool has_failed = false;
    std::unique_ptr<issuers::IssuerKeys> keys;
  };
  Issuer MakeIssuer(const issuers::IssuerSettings& settings);
  // Null if the settings were replaced since.
  const Issuer* FindVersion(std::uint64_t version) const;
  void Finished(std::uint64_t reader, const std::optional<Error>& failure);
  static std::string TrustOf(const Issuer& issuer, const std::string& key);
  std::string TrustOfMunge() const;
  void UpdateTrust();
  boost::asio::awaitable<void> WaitForKeys();

  boost::asio::io_context& loop_;
  const issuers::IssuerKeys::Pace pace_;
  const TrustChanged trust_changed_;
  issuers::Settings settings_;
  std::uint64_t last_number_ = 0;
  std::uint64_t munge_version_ = 0;
  spdlog::logger& log_;
  std::unordered_map<std::string, Identity> known_;  // By the hash of the token.
  // Those who wait for keys. Coroutines share it, because they may end after this object.
  std::shared_ptr<Waiting> waiting_ = std::make_shared<Waiting>();
  boost::asio::thread_pool signatures_{1};
  boost::asio::thread_pool munge_{1};
  // Readers of keys that are no longer needed end here, because a running request may take long.
  boost::asio::thread_pool ending_{1};
  std::vector<Issuer> issuers_;  // Last: their threads call Finished.
};

}  // namespace perseus::server
