// The metrics of the server for Prometheus.
//
// Thread safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "perseus/cluster/server/api/fleet_status.h"
#include "perseus/cluster/telemetry/job_watch.h"

namespace perseus::server {

class ServerMetrics {
 public:
  ServerMetrics();
  ~ServerMetrics();

  void CountRequest(std::string_view method, std::string_view pattern, int status, double seconds);
  void CountPlanning(std::string_view status, double seconds);
  void CountStoreFailure();
  // `what` is "certificates" or "identities".
  void CountReload(const std::string& what, bool is_done);
  // The current values of the server.
  struct Gauges {
    int connections = 0;
    int streams = 0;
    int jobs = 0;  // Jobs whose nodes report to this replica.
    std::int64_t events = 0;
    std::int64_t refused_connections = 0;
    std::int64_t dropped_streams = 0;
    std::int64_t overload_refusals = 0;
  };
  void Set(const Gauges& gauges);
  void SetReady(bool is_ready);
  void SetRefusedWrites(std::int64_t count);
  void SetFleet(const FleetStatus& fleet);
  void CountNotice(bool is_suspended);
  void CountGuard(store::GuardState state);
  void CountEnergy(const telemetry::JudgedEnergy& energy);

  // Returns the metrics in the text exposition format, version 0.0.4.
  std::string Format() const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace perseus::server
