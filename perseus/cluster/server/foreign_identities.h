// Identifies callers by what others have signed: tokens of trusted issuers, and munge credentials
// (docs/identity.md).
//
//                       known ──► Identity
//   signed token ──► issuer ──► key? ──► signature (own thread) ──► claims ──► grants ──► Identity
//                                │ unknown
//                                └──► waits for the issuer's thread, at most kKeysWait
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
  ForeignIdentities(boost::asio::io_context& loop, issuers::Settings settings,
                    const issuers::IssuerKeys::Pace& pace, spdlog::logger& log);
  // After the loop has stopped.
  ~ForeignIdentities();

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
    const issuers::IssuerSettings* settings = nullptr;
    bool has_failed = false;
    std::unique_ptr<issuers::IssuerKeys> keys;
  };
  void Finished(std::size_t issuer, const std::optional<Error>& failure);
  boost::asio::awaitable<void> WaitForKeys();

  boost::asio::io_context& loop_;
  const issuers::Settings settings_;
  spdlog::logger& log_;
  std::unordered_map<std::string, Identity> known_;  // By the hash of the token.
  // Those who wait for keys. Coroutines share it, because they may end after this object.
  std::shared_ptr<Waiting> waiting_ = std::make_shared<Waiting>();
  boost::asio::thread_pool signatures_{1};
  boost::asio::thread_pool munge_{1};
  std::vector<Issuer> issuers_;  // Last: their threads call Finished.
};

}  // namespace perseus::server
