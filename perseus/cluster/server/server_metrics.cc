#include "perseus/cluster/server/server_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>

namespace perseus::server {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using Bounds = prometheus::Histogram::BucketBoundaries;

struct ServerMetrics::Families {
  prometheus::Registry registry;

  prometheus::Family<prometheus::Counter>& requests =
      BuildCounter()
          .Name("perseus_server_requests_total")
          .Help("Requests answered, by route and status.")
          .Register(registry);
  prometheus::Family<prometheus::Histogram>& request_seconds =
      BuildHistogram()
          .Name("perseus_server_request_duration_seconds")
          .Help("Time from the first byte of a request to its answer, by route.")
          .Register(registry);
  prometheus::Family<prometheus::Counter>& plannings = BuildCounter()
                                                           .Name("perseus_server_plannings_total")
                                                           .Help("Plannings of jobs, by result.")
                                                           .Register(registry);
  prometheus::Family<prometheus::Histogram>& planning_family =
      BuildHistogram()
          .Name("perseus_server_planning_duration_seconds")
          .Help("Time of one planning of a job.")
          .Register(registry);
  prometheus::Histogram& planning_seconds =
      planning_family.Add({}, Bounds{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100});
  prometheus::Counter& store_failures = BuildCounter()
                                            .Name("perseus_server_store_failures_total")
                                            .Help("Failed operations of the database.")
                                            .Register(registry)
                                            .Add({});
  prometheus::Counter& events = BuildCounter()
                                    .Name("perseus_server_events_total")
                                    .Help("Events sent to nodes.")
                                    .Register(registry)
                                    .Add({});
  prometheus::Counter& refused = BuildCounter()
                                     .Name("perseus_server_refused_connections_total")
                                     .Help("Connections refused because of a limit.")
                                     .Register(registry)
                                     .Add({});
  prometheus::Counter& dropped = BuildCounter()
                                     .Name("perseus_server_dropped_streams_total")
                                     .Help("Event streams closed because their node did not read.")
                                     .Register(registry)
                                     .Add({});
  prometheus::Gauge& connections = BuildGauge()
                                       .Name("perseus_server_connections")
                                       .Help("Open connections.")
                                       .Register(registry)
                                       .Add({});
  prometheus::Gauge& streams = BuildGauge()
                                   .Name("perseus_server_streams")
                                   .Help("Open event streams, one for each node.")
                                   .Register(registry)
                                   .Add({});
  prometheus::Gauge& jobs = BuildGauge()
                                .Name("perseus_server_reporting_jobs")
                                .Help("Jobs whose nodes report to this replica.")
                                .Register(registry)
                                .Add({});
  prometheus::Gauge& ready = BuildGauge()
                                 .Name("perseus_server_ready")
                                 .Help("1 while the database answers.")
                                 .Register(registry)
                                 .Add({});
};

ServerMetrics::ServerMetrics() : families_(std::make_unique<Families>()) {
  // Start at 0, because Prometheus sees no increase if a series begins with its first failure.
  for (const char* status : {"planned", "failed", "waiting", "superseded"}) {
    families_->plannings.Add({{"status", status}});
  }
}
ServerMetrics::~ServerMetrics() = default;

void ServerMetrics::CountRequest(std::string_view method, std::string_view pattern, int status,
                                 double seconds) {
  // Unknown routes share one label, so that clients cannot create new series.
  constexpr std::array<std::string_view, 5> kMethods{"GET", "HEAD", "POST", "PUT", "DELETE"};
  const bool is_known = !pattern.empty() && std::ranges::find(kMethods, method) != kMethods.end();
  const std::string route = is_known ? std::string(method) + " " + std::string(pattern) : "other";
  families_->requests.Add({{"route", route}, {"status", std::to_string(status)}}).Increment();
  families_->request_seconds
      .Add({{"route", route}}, Bounds{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3})
      .Observe(seconds);
}

void ServerMetrics::CountPlanning(std::string_view status, double seconds) {
  families_->plannings.Add({{"status", std::string(status)}}).Increment();
  families_->planning_seconds.Observe(seconds);
}

void ServerMetrics::CountStoreFailure() { families_->store_failures.Increment(); }

void ServerMetrics::Set(const Gauges& gauges) {
  families_->connections.Set(gauges.connections);
  families_->streams.Set(gauges.streams);
  families_->jobs.Set(gauges.jobs);
  families_->ready.Set(gauges.is_ready ? 1 : 0);
  const auto raise = [](prometheus::Counter& counter, std::int64_t to) {
    counter.Increment(std::max(0.0, static_cast<double>(to) - counter.Value()));
  };
  raise(families_->events, gauges.events);
  raise(families_->refused, gauges.refused_connections);
  raise(families_->dropped, gauges.dropped_streams);
}

std::string ServerMetrics::Format() const {
  return prometheus::TextSerializer().Serialize(families_->registry.Collect());
}

}  // namespace perseus::server
