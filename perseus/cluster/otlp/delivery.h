// Delivers the requests of one signal (traces or metrics) to its endpoint, one at a time.
//
// It follows OTLP over HTTP: 2xx is a success, which may refuse a part; 429, 502, 503, 504 and a
// failed connection are tried again, after Retry-After or with growing, random pauses; everything
// else is final. Redirects are not followed, because they would take the headers elsewhere. A
// request that is not delivered after 5 minutes is dropped.
//
// Not thread safe.
#pragma once

#include <spdlog/logger.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "perseus/base/random.h"
#include "perseus/base/result.h"
#include "perseus/cluster/http/client.h"
#include "perseus/cluster/otlp/settings.h"

namespace perseus::otlp {

class Delivery {
 public:
  using Clock = std::chrono::steady_clock;
  struct Request {
    std::string body;
    std::int64_t items = 0;  // Spans, or metrics.
  };
  // Of the items.
  struct Counts {
    std::int64_t exported = 0;
    std::int64_t refused = 0;   // By the endpoint.
    std::int64_t expired = 0;   // The endpoint was unavailable for too long.
    std::int64_t failures = 0;  // Requests that failed.
  };

  // `name`: of the signal, for the log and the answers: "traces" or "metrics". `should_end`: see
  // http::ClientOptions.
  static Result<Delivery> Create(const std::string& name, const Endpoint& endpoint,
                                 const Settings& settings, std::function<bool()> should_end,
                                 spdlog::logger& log);

  // Replaces a request that is not delivered yet. The replaced one counts as nothing.
  void Put(Request request, Clock::time_point now);
  bool IsPending() const { return pending_.has_value(); }
  // When to call Attempt. Only if a request is pending.
  Clock::time_point next() const { return next_; }
  // Sends the pending request. Blocks up to the timeout.
  void Attempt(Clock::time_point now);
  // Counts the pending request as expired.
  void GiveUp();
  const Counts& counts() const { return counts_; }

 private:
  Delivery(std::string name, Endpoint endpoint, http::Client client, spdlog::logger& log)
      : name_(std::move(name)),
        endpoint_(std::move(endpoint)),
        client_(std::move(client)),
        log_(&log) {}
  void TakeAnswer(const http::Response& answer, Clock::time_point now);
  void TakeSuccess(const http::Response& answer);
  void Refused(const std::string& why);
  void TryLater(const std::string& why, std::optional<std::chrono::seconds> after,
                Clock::time_point now);
  void WarnOnce(const std::string& why, const char* consequence);

  std::string name_;
  Endpoint endpoint_;
  http::Client client_;
  spdlog::logger* log_;
  std::optional<Request> pending_;
  Clock::time_point first_;  // When the pending request was put here.
  Clock::time_point next_;
  std::chrono::milliseconds pause_{0};
  bool has_warned_ = false;
  SplitMix64 random_ = {};
  Counts counts_;
};

}  // namespace perseus::otlp
