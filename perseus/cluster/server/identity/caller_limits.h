// Limits the requests of one caller and the changes of one job, so that one caller or one job
// cannot overload the server.
//
// A caller is a token. A token may be valid for many nodes, so each of these nodes is a separate
// caller. If a request has no valid token, its address is the caller. Each limit is a token bucket
// (http/admission.h) that holds 10 s of the rate, because programs send many requests at once and
// then pause.
//
// Overload: requests wait for a thread, and threads wait for the database. If a request that begins
// now has waited for a long time, new requests will wait at least as long. Their clients would give
// up before the answer. So the server refuses requests early. It refuses the requests of nodes
// first, because nodes keep their reports and send them together later. People and schedulers must
// reach a busy server.
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
  double requests_per_second = 0;  // Requests of one caller, and changes of one job. 0: no limit.
  double bytes_per_second = 0;     // Bytes in the bodies of one caller's requests. 0: no limit.
  int jobs = 0;                    // Running jobs of all owners. 0: no limit.
  int jobs_of_owner = 0;           // Running jobs of one owner. 0: no limit.
  int streams_of_token = 0;        // Event streams of one token. 0: no limit.
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
  // Counts one more stream of the token while the returned ticket exists. Returns null if the token
  // has too many streams.
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

// Measures how long requests wait for a thread of the pool, and refuses requests during an
// overload.
class WaitingRequests {
 public:
  using Clock = std::chrono::steady_clock;
  // How long the requests of nodes may wait, and how long other requests may wait.
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
  std::atomic<std::int64_t> delay_ms_ = 0;  // How long the request that began last had waited.
  std::atomic<std::int64_t> refused_ = 0;
};

}  // namespace perseus::server
