#include "perseus/cluster/server/identity/caller_limits.h"

#include <fmt/core.h>

#include <limits>
#include <utility>

#include "perseus/base/excerpt.h"

namespace perseus::server {
namespace {

constexpr double kSecondsAtOnce = 10;
// If fewer requests wait, the delay of the last request does not predict the delay of the next
// request.
constexpr int kLeastWaiting = 16;

tl::unexpected<http::Problem> TooMany(std::string detail, std::chrono::milliseconds wait) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(wait).count();
  auto refused = Refuse(429, "Too many requests", std::move(detail),
                        fmt::format("try again in {} s", seconds));
  refused.value().retry_after_s = static_cast<int>(seconds);
  return refused;
}

}  // namespace

CallerLimits::CallerLimits(const CallerLimitOptions& options)
    : options_(options),
      requests_(options.requests_per_second, kSecondsAtOnce * options.requests_per_second),
      bytes_(options.bytes_per_second, kSecondsAtOnce * options.bytes_per_second),
      changes_(options.requests_per_second, kSecondsAtOnce * options.requests_per_second),
      streams_({.all = std::numeric_limits<int>::max(),
                .of_one_address = options.streams_of_token > 0 ? options.streams_of_token
                                                               : std::numeric_limits<int>::max()}) {
}

Answer<void> CallerLimits::Spend(const std::string& key, std::string_view who, std::size_t bytes,
                                 Clock::time_point now) {
  const MutexLock lock(mutex_);
  if (const auto wait = requests_.TimeToWait(key, now)) {
    return TooMany(
        fmt::format("{} sent more than {} requests per second", who, options_.requests_per_second),
        *wait);
  }
  if (bytes == 0) return {};
  if (const auto wait = bytes_.TimeToWait(key, now, static_cast<double>(bytes))) {
    return TooMany(fmt::format("the bodies of {} have more than {:.0f} bytes per second", who,
                               options_.bytes_per_second),
                   *wait);
  }
  return {};
}

Answer<void> CallerLimits::Spend(const Identity& caller, std::string_view node,
                                 const http::Request& request, Clock::time_point now) {
  // Without tokens, the address identifies the caller. No name of a node starts with a space, so
  // the keys below are unique.
  const std::string token = caller.token.empty() ? request.peer : caller.token;
  if (node.empty())
    return Spend(token, caller.token.empty() ? "this address" : "this token", request.body.size(),
                 now);
  return Spend(fmt::format("{} {}", token, node), fmt::format("node {}", Excerpt(node)),
               request.body.size(), now);
}

Answer<void> CallerLimits::SpendUnknown(const http::Request& request, Clock::time_point now) {
  return Spend("unknown " + http::AddressGroup(request.peer), "this address", request.body.size(),
               now);
}

Answer<void> CallerLimits::SpendOfJob(const std::string& job, Clock::time_point now) {
  const MutexLock lock(mutex_);
  const auto wait = changes_.TimeToWait(job, now);
  if (!wait) return {};
  return TooMany(fmt::format("this job was changed more than {} times per second",
                             options_.requests_per_second),
                 *wait);
}

http::ConnectionCounter::Ticket CallerLimits::OpenStream(const std::string& token) {
  return streams_.Enter(token);
}

Answer<void> WaitingRequests::Enter(Access access) {
  const auto most = access == Access::kNode ? kMostOfNodes : kMostOfOthers;
  if (waiting_ >= kLeastWaiting && delay_ms_ > most.count()) {
    ++refused_;
    return TooMany("the server has more requests than it can answer in time",
                   std::chrono::seconds(1));
  }
  ++waiting_;
  return {};
}

void WaitingRequests::Begin(Clock::time_point entered, Clock::time_point now) {
  --waiting_;
  delay_ms_ = std::chrono::duration_cast<std::chrono::milliseconds>(now - entered).count();
}

}  // namespace perseus::server
