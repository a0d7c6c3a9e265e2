// The whole server: the store, planning workers, endpoints and event streams.
//
//   auto server = ControlPlane::Start({.database = "sqlite:perseus.db"}, log);
//   server->Run();                      until Stop()
#pragma once

#include <spdlog/logger.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/http/server.h"
#include "perseus/cluster/server/identity/caller_limits.h"
#include "perseus/cluster/server/identity/identity_settings.h"
#include "perseus/cluster/store/store.h"

namespace perseus::server {

class ServerClock;

struct ControlPlaneOptions {
  std::string address = "127.0.0.1:7410";
  std::string database = "sqlite:perseus.db";  // An address for OpenStore.
  std::optional<http::TlsFiles> tls = {};
  http::Limits limits = {};
  CallerLimitOptions caller_limits = {};
  IdentitySettings identities = {};  // Who can call without a token of the server.
  // Reads `identities` again, for Reload. Empty if the identities never change.
  std::function<Result<IdentitySettings>()> read_identities = {};
  // Allows an address that other machines can reach without TLS or without tokens.
  bool is_insecure = false;
  int planning_threads = 2;
  double lead_s = 0.5;          // The time from making an assignment to its first step.
  double keep_ended_days = 30;  // How long ended jobs are kept.
  // The unique name of this replica. Empty: host name and process id.
  std::string replica = {};
  std::function<Milliseconds()> now = {};   // The time of day. Empty: a ServerClock.
  std::shared_ptr<ServerClock> clock = {};  // Start sets it if `now` is empty.
  // How often the server checks the database and the certificates, and deletes old jobs.
  std::chrono::milliseconds maintenance_interval{5'000};
};

class ControlPlane {
 public:
  // Starts the server. Fails (kInput) if options contradict each other. Also fails with the errors
  // of OpenStore and http::Server::Listen.
  static Result<std::unique_ptr<ControlPlane>> Start(ControlPlaneOptions options,
                                                     spdlog::logger& log);
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  int port() const;
  void Run();   // Returns after Stop.
  void Stop();  // Call it from any thread. Running requests end first.
  // Reads the certificates and the identities again. New connections use the new certificates. The
  // new identities replace the old identities, and streams that depend on the old identities close.
  // If a file is wrong, nothing changes, and the error is logged and counted. Call this from any
  // thread.
  void Reload();
  // All routes, such as "GET /v1/jobs/{job}", sorted. openapi.yaml has to list all of them.
  const std::vector<std::string>& Routes() const;

 private:
  class Impl;
  explicit ControlPlane(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace perseus::server
