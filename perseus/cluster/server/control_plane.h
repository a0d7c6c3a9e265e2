// The server, put together: store, planning workers, endpoints and event streams.
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
#include "perseus/cluster/store/store.h"

namespace perseus::server {

struct ControlPlaneOptions {
  std::string address = "127.0.0.1:7410";
  std::string database = "sqlite:perseus.db";  // As OpenStore takes it.
  std::optional<http::TlsFiles> tls = {};
  http::Limits limits = {};
  // Without it, an address that is not this machine's own is refused unless there are TLS and
  // tokens.
  bool is_insecure = false;
  int planning_threads = 2;
  double lead_s = 0.5;                            // How far ahead of a step assignment are given.
  double keep_ended_days = 30;                    // Jobs that have ended.
  std::string replica = {};                       // Unique; empty: host and process.
  std::function<store::Milliseconds()> now = {};  // Empty: the system's clock.
  // What keeps house (deletes old jobs, looks whether the database answers and whether certificates
  // were renewed) does so this often.
  std::chrono::milliseconds housekeeping{5'000};
};

class ControlPlane {
 public:
  // kInput for options that contradict each other; what the store or the server fail with.
  static Result<std::unique_ptr<ControlPlane>> Start(ControlPlaneOptions options,
                                                     spdlog::logger& log);
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  int port() const;
  void Run();        // Returns after Stop.
  void Stop();       // From any thread, or a signal's handler thread. Requests in flight end.
  void ReloadTls();  // From any thread: new connections get the certificates as they are now.
  // "GET /v1/jobs/{job}", sorted: what openapi.yaml has to list.
  const std::vector<std::string>& Routes() const;

 private:
  class Impl;
  explicit ControlPlane(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace perseus::server
