// Limits the requests of one caller and the changes of one job, so that neither of them overloads
// the server.
//
// A caller is a token. A token may be valid for many nodes, so each of these nodes is a separate
// caller. A request without a valid token counts for its address. The buckets hold 10 s of the
// rate, because programs send many requests at once, and then none.
//
// Back-pressure: requests wait for a thread, and threads wait for the database. If a request that
// begins now has waited for a long time, new requests wait at least as long, and their clients no
// longer wait for the answers. So the server refuses requests early. It refuses nodes first: nodes
// keep their reports, and send them together later. People and schedulers must reach a busy server.
//
// Thread safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "perseus/base/mutex.h"
#include "perseus/cluster/http/admission.h"
#include "perseus/cluster/http/message.h"
#include "perseus/cluster/server/identity/answer.h"
#include "perseus/cluster/server/identity/identity.h"

namespace perseus::server {

struct CallerLimitOptions {
  double requests_per_second = 0;  // For one caller, and for changes of one job. 0: no limit.
  double bytes_per_second = 0;     // In the bodies of one caller. 0: no limit.
  int jobs = 0;                    // Running jobs of all owners. 0: no limit.
  int jobs_of_owner = 0;           // Running jobs of one owner. 0: no limit.
  int streams_of_token = 0;        // Event streams. 0: no limit.
};

class CallerLimits {
 public:
  using Clock = std::chrono::steady_clock;
  explicit CallerLimits(const CallerLimitOptions& options);

  // Fails with 429 if the caller sent too much. `node` is the node that the request is about, or
  // empty.
  Answer<void> Spend(const Identity& caller, std::string_view node, const http::Request& request,
                     Clock::time_point now = Clock::now());
  // The same for a request without a valid token.
  Answer<void> SpendUnknown(const http::Request& request, Clock::time_point now = Clock::now());
  // Fails with 429 if the job changes too often.
  Answer<void> SpendOfJob(const std::string& job, Clock::time_point now = Clock::now());

  const CallerLimitOptions& options() const { return options_; }
  // Holds one of the token's streams while the ticket exists. Null if the token has too many
  // streams.
  http::ConnectionCounter::Ticket OpenStream(const std::string& token);

 private:
  Answer<void> Spend(const std::string& key, std::string_view who, std::size_t bytes,
                     Clock::time_point now);

  const CallerLimitOptions options_;
  Mutex mutex_;
  http::RateLimiter requests_ PERSEUS_GUARDED_BY(mutex_);
  http::RateLimiter bytes_ PERSEUS_GUARDED_BY(mutex_);
  http::RateLimiter changes_ PERSEUS_GUARDED_BY(mutex_);
  http::ConnectionCounter streams_;  // Used only on the loop.
};

// Requests that wait for a thread of the pool.
class WaitingRequests {
 public:
  using Clock = std::chrono::steady_clock;
  // How long requests of nodes, and other requests, may wait.
  static constexpr std::chrono::milliseconds kMostOfNodes{300};
  static constexpr std::chrono::milliseconds kMostOfOthers{2'000};

  // Fails with 429 if the server is overloaded. Otherwise the caller has to call Begin on the
  // thread of the pool.
  Answer<void> Enter(Access access);
  void Begin(Clock::time_point entered, Clock::time_point now = Clock::now());

  int waiting() const { return waiting_; }
  std::int64_t refused() const { return refused_; }

 private:
  std::atomic<int> waiting_ = 0;
  std::atomic<std::int64_t> delay_ms_ = 0;  // The delay of the request that began last.
  std::atomic<std::int64_t> refused_ = 0;
};

}  // namespace perseus::server
