// The metrics of the server for Prometheus.
//
// Thread safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace perseus::server {

class ServerMetrics {
 public:
  ServerMetrics();
  ~ServerMetrics();

  void CountRequest(std::string_view method, std::string_view pattern, int status, double seconds);
  void CountPlanning(std::string_view status, double seconds);
  void CountStoreFailure();
  // Current values.
  struct Gauges {
    int connections = 0;
    int streams = 0;
    int jobs = 0;  // Jobs whose nodes report to this replica.
    std::int64_t events = 0;
    std::int64_t refused_connections = 0;
    std::int64_t dropped_streams = 0;
    bool is_ready = false;
  };
  void Set(const Gauges& gauges);

  // The text exposition format, version 0.0.4.
  std::string Format() const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace perseus::server
