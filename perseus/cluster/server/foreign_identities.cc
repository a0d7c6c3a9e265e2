#include "perseus/cluster/server/foreign_identities.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/cluster/http/offload.h"
#include "perseus/cluster/munge/credential.h"
#include "perseus/cluster/server/granted_identity.h"
#include "perseus/cluster/server/rights.h"

namespace perseus::server {
namespace {

constexpr std::size_t kMostKnown = 10'000;
constexpr store::Milliseconds kLeewayUnit = 1000;
constexpr const char* kChanged = "the settings of its issuer were replaced just now (try again)";

tl::unexpected<http::Problem> RefuseToken(const std::string& why) {
  return Refuse(401, "A valid token is required", "the signed token is refused: " + why,
                "get another token (people: perseus login)");
}

// Wakes a waiting coroutine, and is forgotten with it.
class Sleeper {
 public:
  Sleeper(boost::asio::io_context& loop, std::chrono::milliseconds longest,
          std::shared_ptr<std::set<boost::asio::steady_timer*>> all)
      : timer_(loop, longest), all_(std::move(all)) {
    all_->insert(&timer_);
  }
  ~Sleeper() { all_->erase(&timer_); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  boost::asio::steady_timer& timer() { return timer_; }

 private:
  boost::asio::steady_timer timer_;
  std::shared_ptr<std::set<boost::asio::steady_timer*>> all_;
};

}  // namespace

ForeignIdentities::ForeignIdentities(boost::asio::io_context& loop, issuers::Settings settings,
                                     const issuers::IssuerKeys::Pace& pace,
                                     TrustChanged trust_changed, spdlog::logger& log)
    : loop_(loop),
      pace_(pace),
      trust_changed_(std::move(trust_changed)),
      settings_(std::move(settings)),
      log_(log) {
  for (const issuers::IssuerSettings& one : settings_.issuers) issuers_.push_back(MakeIssuer(one));
  UpdateTrust();
}

ForeignIdentities::~ForeignIdentities() {
  issuers_.clear();
  signatures_.join();
  munge_.join();
  ending_.join();
}

ForeignIdentities::Issuer ForeignIdentities::MakeIssuer(const issuers::IssuerSettings& settings) {
  const std::uint64_t reader = ++last_number_;
  return {.settings = std::make_shared<const issuers::IssuerSettings>(settings),
          .version = ++last_number_,
          .reader = reader,
          .has_failed = false,
          .keys = std::make_unique<issuers::IssuerKeys>(
              issuers::KeyReader(settings), pace_, [this, reader](const Error* failure) {
                const auto copy = failure == nullptr ? std::nullopt : std::optional(*failure);
                boost::asio::post(loop_, [this, reader, copy] { Finished(reader, copy); });
              })};
}

void ForeignIdentities::Replace(issuers::Settings settings) {
  std::vector<Issuer> old = std::exchange(issuers_, {});
  for (const issuers::IssuerSettings& one : settings.issuers) {
    const auto same = std::ranges::find_if(old, [&one](const Issuer& other) {
      return other.keys && issuers::HaveSameKeys(*other.settings, one);
    });
    if (same == old.end()) {
      issuers_.push_back(MakeIssuer(one));
      continue;
    }
    Issuer& kept = issuers_.emplace_back(std::move(*same));
    kept.keys->ReadSoon();
    if (*kept.settings == one) continue;
    kept.settings = std::make_shared<const issuers::IssuerSettings>(one);
    kept.version = ++last_number_;
  }
  for (Issuer& gone : old) {
    if (!gone.keys) continue;
    boost::asio::post(ending_, [keys = std::shared_ptr<issuers::IssuerKeys>(
                                    std::move(gone.keys))]() mutable { keys.reset(); });
  }
  if (settings.munge != settings_.munge) munge_version_ = ++last_number_;
  settings_ = std::move(settings);
  known_.clear();
  UpdateTrust();
  for (boost::asio::steady_timer* timer : *waiting_) timer->cancel();
}

const ForeignIdentities::Issuer* ForeignIdentities::FindVersion(std::uint64_t version) const {
  const auto found = std::ranges::find(issuers_, version, &Issuer::version);
  return found == issuers_.end() ? nullptr : &*found;
}

std::string ForeignIdentities::TrustOf(const Issuer& issuer, const std::string& key) {
  return HashOfSecret(fmt::format("{} {}", issuer.version, key));
}

std::string ForeignIdentities::TrustOfMunge() const {
  return fmt::format("munge {}", munge_version_);
}

void ForeignIdentities::UpdateTrust() {
  std::set<std::string> trust;
  if (settings_.munge) trust.insert(TrustOfMunge());
  for (const Issuer& issuer : issuers_) {
    const auto keys = issuer.keys->Newest();
    if (!keys) continue;
    for (const std::string& key : keys->Names()) trust.insert(TrustOf(issuer, key));
  }
  trust_changed_(std::move(trust));
}

void ForeignIdentities::Finished(std::uint64_t reader, const std::optional<Error>& failure) {
  const auto found = std::ranges::find(issuers_, reader, &Issuer::reader);
  if (found == issuers_.end()) return;
  Issuer& one = *found;
  // A key may be gone now, so every token is checked again.
  if (!failure) {
    known_.clear();
    UpdateTrust();
  }
  if (failure && !one.has_failed) {
    log_.warn("the keys of issuer {} cannot be read: {}; {}", one.settings->name, failure->message,
              one.keys->Newest() ? "the last ones stay in force" : "its tokens are refused");
  } else if (!failure && one.has_failed) {
    log_.info("the keys of issuer {} are read again", one.settings->name);
  }
  one.has_failed = failure.has_value();
  for (boost::asio::steady_timer* timer : *waiting_) timer->cancel();
}

boost::asio::awaitable<void> ForeignIdentities::WaitForKeys() {
  Sleeper sleeper(loop_, kKeysWait, waiting_);
  boost::system::error_code error;
  co_await sleeper.timer().async_wait(
      boost::asio::redirect_error(boost::asio::use_awaitable, error));
}

std::optional<Identity> ForeignIdentities::Known(std::string_view token,
                                                 store::Milliseconds now) const {
  if (token.size() > issuers::kMostTokenBytes) return std::nullopt;
  const auto found = known_.find(HashOfSecret(token));
  if (found == known_.end() || found->second.expires <= now) return std::nullopt;
  return found->second;
}

boost::asio::awaitable<Answer<Identity>> ForeignIdentities::CheckToken(std::string text,
                                                                       store::Milliseconds now) {
  auto token = issuers::ReadSignedToken(text);
  if (!token) co_return RefuseToken(token.error().message);
  const std::string from = issuers::TextClaim(token->claims, "iss");
  const auto found = std::ranges::find_if(
      issuers_, [&from](const Issuer& one) { return one.settings->url == from; });
  if (found == issuers_.end()) {
    co_return RefuseToken(fmt::format("the server does not trust the issuer {}", Excerpt(from)));
  }
  // Cheap, and before anything waits.
  const auto settings = found->settings;
  const auto expires = issuers::CheckClaims(token->claims,
                                            {.issuer = settings->url,
                                             .audience = settings->audience,
                                             .leeway = kLeewayUnit * settings->leeway_s},
                                            now);
  if (!expires) co_return RefuseToken(expires.error().message);
  // The settings may be replaced while this waits, and then the issuer is looked up in vain.
  const std::uint64_t version = found->version;
  const Issuer* issuer = &*found;
  auto keys = issuer->keys->Newest();
  // The keys of another issuer may wake this one.
  const auto until = std::chrono::steady_clock::now() + kKeysWait;
  while ((!keys || !keys->HasKeyFor(*token)) && issuer->keys->ReadAgain() &&
         std::chrono::steady_clock::now() < until) {
    co_await WaitForKeys();
    issuer = FindVersion(version);
    if (issuer == nullptr) co_return RefuseToken(kChanged);
    keys = issuer->keys->Newest();
  }
  if (!keys) {
    co_return Refuse(503, "The server cannot do this now",
                     fmt::format("the keys of issuer {} cannot be read", settings->name),
                     "try again later; tokens of this server work");
  }
  const auto verify = [&keys, &token] { return keys->Verify(*token); };
  const Result<std::string> key = co_await http::Offload(signatures_, verify);
  if (!key) co_return RefuseToken(key.error().message);
  issuer = FindVersion(version);
  if (issuer == nullptr) co_return RefuseToken(kChanged);
  // The key may have been withdrawn in the meantime.
  const auto names = issuer->keys->Newest()->Names();
  if (std::ranges::find(names, *key) == names.end()) co_return RefuseToken(kChanged);
  auto identity = GrantedIdentity(*settings, token->claims, *expires);
  if (!identity) co_return identity;
  identity->trust = TrustOf(*issuer, *key);
  UpdateTrust();  // The keys may be newer than the last notice of their reader.
  if (known_.size() >= kMostKnown) known_.clear();
  known_[HashOfSecret(text)] = *identity;
  co_return identity;
}

boost::asio::awaitable<Answer<Identity>> ForeignIdentities::CheckMunge(std::string credential,
                                                                       std::string node,
                                                                       store::Milliseconds now) {
  if (!settings_.munge) {
    co_return Refuse(401, "A valid token is required", "the server does not accept munge",
                     "use a join token, or add [munge] to the file of serve --issuers");
  }
  const issuers::MungeSettings munge = *settings_.munge;
  const std::string trust = TrustOfMunge();
  const auto decode = [&] { return munge::Decode(credential, munge.socket); };
  const Result<munge::Decoded> decoded = co_await http::Offload(munge_, decode);
  if (!decoded && decoded.error().kind == ErrorKind::kSystem) {
    co_return Refuse(503, "The server cannot do this now", decoded.error().message,
                     "start munged on the server's host, or use a join token");
  }
  if (!decoded) {
    co_return Refuse(401, "A valid token is required", decoded.error().message,
                     "encode another credential for each request");
  }
  if (decoded->text != munge::JoinText(munge.audience, node)) {
    co_return Refuse(401, "A valid token is required",
                     "the munge credential is for another node or another server",
                     fmt::format("encode: {}", munge::JoinText(munge.audience, node)));
  }
  auto identity = MungeIdentity(munge, decoded->user, now);
  if (identity) identity->trust = trust;
  co_return identity;
}

}  // namespace perseus::server
