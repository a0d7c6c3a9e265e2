#include "perseus/cluster/issuers/issuer_keys.h"

#include <algorithm>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/cluster/http/client.h"
#include "perseus/cluster/issuers/provider.h"

namespace perseus::issuers {

IssuerKeys::IssuerKeys(Read read, const Pace& pace, Finished finished)
    : read_(std::move(read)),
      pace_(pace),
      finished_(std::move(finished)),
      thread_([this](const std::stop_token& ends) { Run(ends); }) {}

IssuerKeys::~IssuerKeys() = default;

std::shared_ptr<const KeySet> IssuerKeys::Newest() const {
  const std::lock_guard lock(mutex_);
  return newest_;
}

bool IssuerKeys::ReadAgain() {
  const std::lock_guard lock(mutex_);
  if (is_reading_ || is_requested_) return true;
  if (Clock::now() < last_ + pace_.least_apart) return false;
  is_requested_ = true;
  wakes_.notify_all();
  return true;
}

void IssuerKeys::ReadSoon() {
  const std::lock_guard lock(mutex_);
  is_due_soon_ = true;
  wakes_.notify_all();
}

void IssuerKeys::Run(const std::stop_token& ends) {
  std::chrono::milliseconds pause = pace_.first_pause;
  while (!ends.stop_requested()) {
    const auto next = ReadOnce(pause);
    std::unique_lock lock(mutex_);
    wakes_.wait_until(lock, ends, next, [this] { return is_requested_ || is_due_soon_; });
    if (is_due_soon_ && !is_requested_) {
      wakes_.wait_until(lock, ends, last_ + pace_.least_apart, [this] { return is_requested_; });
    }
    is_requested_ = is_due_soon_ = false;
    is_reading_ = true;
  }
}

IssuerKeys::Clock::time_point IssuerKeys::ReadOnce(std::chrono::milliseconds& pause) {
  auto keys = read_();
  auto wait = pace_.apart;
  if (keys) {
    pause = pace_.first_pause;
  } else {
    wait = std::exchange(pause, std::min(2 * pause, pace_.apart));
  }
  Clock::time_point next;
  {
    const std::lock_guard lock(mutex_);
    if (keys) newest_ = std::make_shared<const KeySet>(*keys);
    is_reading_ = false;
    last_ = Clock::now();
    next = last_ + wait;
  }
  finished_(keys ? nullptr : &keys.error());
  return next;
}

IssuerKeys::Read KeyReader(const IssuerSettings& settings) {
  return [settings]() -> Result<KeySet> {
    const ProviderAccess access{.authority = settings.authority,
                                .bearer_file = settings.bearer_file};
    std::string url = settings.keys_url;
    if (url.empty()) {
      PERSEUS_ASSIGN_OR_RETURN(const Provider provider, Discover(settings.url, access));
      if (provider.keys_url.empty()) {
        return FailAs(ErrorKind::kSystem, "{} publishes no keys (set keys_url)", settings.url);
      }
      url = provider.keys_url;
    }
    PERSEUS_ASSIGN_OR_RETURN(const auto text, Fetch(url, access));
    auto keys = KeySet::Read(text);
    if (!keys) {
      return FailAs(ErrorKind::kSystem, "{}: {} (is it the address of the keys?)", url,
                    keys.error().message);
    }
    return keys;
  };
}

bool HaveSameKeys(const IssuerSettings& one, const IssuerSettings& other) {
  return one.url == other.url && one.authority == other.authority &&
         one.bearer_file == other.bearer_file && one.keys_url == other.keys_url;
}

Result<void> CheckFiles(const IssuerSettings& settings) {
  PERSEUS_ASSIGN_OR_RETURN(const auto at, ParseProviderUrl(settings.url));
  if (auto usable = http::Client::Create({.server = at.origin, .authority = settings.authority});
      !usable) {
    return Fail(usable);
  }
  for (const std::string& file : {settings.authority, settings.bearer_file}) {
    if (!file.empty()) PERSEUS_RETURN_IF_ERROR(ReadFile(file));
  }
  return {};
}

}  // namespace perseus::issuers
