// What the server does every few seconds: checks whether the database answers, and if so, renews
// the claims of connected nodes, reads the tokens again, and deletes what is old.
//
// Uses the store on the pool, and does everything else on the loop.
#pragma once

#include <spdlog/logger.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/server/database_health.h"
#include "perseus/cluster/server/events/event_hub.h"
#include "perseus/cluster/server/identity/rights.h"
#include "perseus/cluster/store/store.h"
#include "perseus/cluster/telemetry/job_watch.h"

namespace perseus::server {

class Maintenance {
 public:
  // The parts of the server that maintenance uses.
  struct Parts {
    boost::asio::io_context& loop;
    boost::asio::thread_pool& pool;
    store::Store& store;
    DatabaseHealth& health;
    Rights& rights;
    telemetry::JobWatches& watches;
    EventHub& hub;
    spdlog::logger& log;
  };
  struct Options {
    std::chrono::milliseconds interval{5'000};
    double keep_ended_days = 30;
    std::function<store::Milliseconds()> now;
    std::function<void()> each_time;           // Called on the loop before each check.
    std::function<void(const Error&)> failed;  // Called on the pool for each error of the store.
  };
  Maintenance(const Parts& parts, Options options)
      : parts_(parts), options_(std::move(options)), timer_(parts.loop) {}

  // Starts a check now, and another one after each interval. Call it on the loop, or before the
  // loop runs.
  void Run();
  // Call it on the loop.
  void Stop() { timer_.cancel(); }

 private:
  void Check(const std::vector<store::NodeClaim>& claims);
  bool IsDatabaseAvailable();
  void RenewClaims(const std::vector<store::NodeClaim>& claims, store::Milliseconds now);

  const Parts parts_;
  const Options options_;
  boost::asio::steady_timer timer_;
};

}  // namespace perseus::server
