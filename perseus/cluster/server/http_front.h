// The side of the server that faces callers: sockets and certificates, the identity and rights of
// callers, their limits, the endpoints, and the log of requests.
//
// Threads: everything runs on the loop. There are three exceptions. Endpoints run on the pool of
// the database (api/endpoints.h). Receive is called on the thread of the store. Reload is called on
// any thread.
//
// Invariants: the database ends before HttpFront, because endpoints on the database's pool use
// Services. The loop outlives HttpFront. Each member uses only members above it.
#pragma once

#include <spdlog/logger.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/http/server.h"
#include "perseus/cluster/server/api/endpoints.h"
#include "perseus/cluster/server/control_plane.h"
#include "perseus/cluster/server/fleet.h"
#include "perseus/cluster/server/identity/caller_limits.h"
#include "perseus/cluster/server/identity/foreign_identities.h"
#include "perseus/cluster/server/identity/rights.h"
#include "perseus/cluster/server/server_database.h"
#include "perseus/cluster/server/server_metrics.h"

namespace perseus::server {

class HttpFront {
 public:
  HttpFront(const ControlPlaneOptions& options, boost::asio::io_context& loop,
            ServerDatabase& database, Fleet& fleet, ServerMetrics& metrics, spdlog::logger& log);

  // Reads the tokens and listens.
  Result<void> Start();
  // Ends the loop when no connection is left, or after a timeout. Call this on the loop.
  void Stop();
  void End() { ends_.request_stop(); }  // Stops the planning on the pool.

  void Reload();                              // The same as ControlPlane::Reload.
  void Receive(const store::Notice& notice);  // Call it on any thread.
  // Finds certificates that were renewed without a signal, as in a Kubernetes Secret. If only one
  // of two files has changed so far, a later call finds the change of the other file.
  void CheckCertificates();
  void SetGauges();

  Rights& rights() { return rights_; }
  int port() const { return server_->port(); }
  const std::vector<std::string>& routes() const { return routes_; }

 private:
  Services MakeServices();
  Result<void> CheckProxy(const IdentitySettings& identities) const;
  Result<void> CheckExposure() const;
  Result<void> Listen();
  void WatchTokens();
  void ReadCertificates();
  void WaitForEnd(std::shared_ptr<boost::asio::steady_timer> end);
  void Answered(const http::Request& request, std::string_view pattern, int status, double seconds);

  const ControlPlaneOptions& options_;
  boost::asio::io_context& loop_;
  ServerDatabase& database_;
  Fleet& fleet_;
  ServerMetrics& metrics_;
  spdlog::logger& log_;
  Rights rights_;
  std::unique_ptr<ForeignIdentities> foreign_;  // Null without --identities.
  boost::asio::steady_timer tokens_timer_{loop_};
  std::atomic<bool> reload_tokens_{false};
  CallerLimits limits_;
  WaitingRequests waiting_;
  Places large_bodies_;
  Places plans_on_request_;
  std::stop_source ends_;
  const Services services_;
  Endpoints endpoints_;
  std::vector<std::string> routes_;
  std::optional<http::Server> server_;
  std::vector<std::filesystem::file_time_type> tls_times_;
};

}  // namespace perseus::server
