// What the server does every few seconds: looks at certificates and metrics, checks whether the
// database answers, and if so, renews the claims of connected nodes, reads the tokens again, and
// deletes what is old. So it uses all three parts of the server.
//
// Uses the store on the pool, and does everything else on the loop.
#pragma once

#include <spdlog/logger.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <vector>

#include "perseus/cluster/server/control_plane.h"
#include "perseus/cluster/server/fleet.h"
#include "perseus/cluster/server/http_front.h"
#include "perseus/cluster/server/server_database.h"
#include "perseus/cluster/store/store.h"

namespace perseus::server {

class Maintenance {
 public:
  Maintenance(const ControlPlaneOptions& options, boost::asio::io_context& loop,
              ServerDatabase& database, Fleet& fleet, HttpFront& front, spdlog::logger& log)
      : options_(options),
        database_(database),
        fleet_(fleet),
        front_(front),
        log_(log),
        timer_(loop) {}

  // Starts a check now, and another one after each interval. Call it on the loop, or before the
  // loop runs.
  void Run();
  // Call it on the loop.
  void Stop() { timer_.cancel(); }

 private:
  void Check(const std::vector<store::NodeClaim>& claims);
  bool IsDatabaseAvailable();
  void RenewClaims(const std::vector<store::NodeClaim>& claims, store::Milliseconds now);

  const ControlPlaneOptions& options_;
  ServerDatabase& database_;
  Fleet& fleet_;
  HttpFront& front_;
  spdlog::logger& log_;
  boost::asio::steady_timer timer_;
};

}  // namespace perseus::server
