#include "perseus/cluster/server/server_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace perseus::server {

using prometheus::BuildGauge;
using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Bounds = Histogram::BucketBoundaries;

namespace {

// Gauges with labels. Each update contains all current series, and removes every other series. So
// no series of an ended job remains.
class GaugeSet {
 public:
  GaugeSet(prometheus::Registry& registry, const char* name, const char* help)
      : family_(BuildGauge().Name(name).Help(help).Register(registry)) {}

  void Set(const std::map<std::string, std::string>& labels, double value) {
    Gauge& gauge = family_.Add(labels);
    gauge.Set(value);
    next_.insert(&gauge);
  }
  void End() {
    for (Gauge* gauge : gauges_) {
      if (!next_.contains(gauge)) family_.Remove(gauge);
    }
    gauges_ = std::exchange(next_, {});
  }

 private:
  prometheus::Family<Gauge>& family_;
  std::set<Gauge*> gauges_;
  std::set<Gauge*> next_;
};

void Raise(Counter& counter, std::int64_t to) {
  counter.Increment(std::max(0.0, static_cast<double>(to) - counter.Value()));
}

}  // namespace

struct ServerMetrics::Families {
  prometheus::Registry registry;

  prometheus::Family<Counter>& Counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  Counter& One(const char* name, const char* help) { return Counters(name, help).Add({}); }
  Gauge& OneGauge(const char* name, const char* help) {
    return BuildGauge().Name(name).Help(help).Register(registry).Add({});
  }
  prometheus::Family<Histogram>& Histograms(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
  }

  prometheus::Family<Counter>& requests =
      Counters("perseus_server_requests_total", "Requests answered, by route and status.");
  prometheus::Family<Histogram>& request_seconds =
      Histograms("perseus_server_request_duration_seconds",
                 "Time from the first byte of a request to its answer, by route.");
  prometheus::Family<Counter>& plannings =
      Counters("perseus_server_plannings_total", "Plannings of jobs, by result.");
  Histogram& planning_seconds =
      Histograms("perseus_server_planning_duration_seconds", "Time of one planning of a job.")
          .Add({}, Bounds{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100});
  Counter& store_failures =
      One("perseus_server_store_failures_total", "Failed operations of the database.");
  Counter& events = One("perseus_server_events_total", "Events sent to nodes.");
  Counter& refused =
      One("perseus_server_refused_connections_total", "Connections refused because of a limit.");
  Counter& dropped = One("perseus_server_dropped_streams_total",
                         "Event streams closed because their node did not read.");
  Counter& overloads =
      One("perseus_server_overload_refusals_total",
          "Requests refused (429) because they would have waited too long for a thread.");
  Gauge& connections = OneGauge("perseus_server_connections", "Open connections.");
  Gauge& streams = OneGauge("perseus_server_streams", "Open event streams, one for each node.");
  Gauge& jobs =
      OneGauge("perseus_server_reporting_jobs", "Jobs whose nodes report to this replica.");
  Gauge& ready =
      OneGauge("perseus_server_ready", "1 while the database answers and accepts changes.");
  Counter& refused_writes =
      One("perseus_server_store_refused_writes_total",
          "Changes that the database refused because it was unavailable or full.");
  prometheus::Family<Counter>& notices =
      Counters("perseus_server_straggler_notices_total",
               "Reports and forecasts of stragglers that measurement contradicted (suspended), or "
               "no longer contradicted (reinstated).");
  prometheus::Family<Counter>& guards =
      Counters("perseus_server_plan_guards_total",
               "Plans that were tried against the default clocks (trial), and the result: taken "
               "back (withdrawn) or back in force (cleared).");
  Counter& baseline_energy =
      One("perseus_server_baseline_joules_total",
          "Planned energy at maximum frequency of the steps that this replica judged.");
  Counter& measured_energy = One("perseus_server_measured_joules_total",
                                 "Measured energy of the same steps. The difference is saved.");
  prometheus::Family<Counter>& reloads =
      Counters("perseus_server_reloads_total",
               "Files that were read again while the server runs (certificates, identities), by "
               "result. After a failure, the old ones stay in force.");
  Gauge& backlog = OneGauge("perseus_server_planning_backlog_jobs",
                            "Jobs whose planning is due and has not begun.");
  Gauge& backlog_age = OneGauge("perseus_server_planning_backlog_age_seconds",
                                "How long the oldest planning has been due.");
  GaugeSet nodes{registry, "perseus_server_nodes",
                 "Nodes of running jobs by state; a node counts once for each job."};
  GaugeSet stragglers{registry, "perseus_server_stragglers",
                      "Stragglers of running jobs by source and state."};
  // The gauges by the names in JobStatus::values.
  std::map<std::string, GaugeSet> of_jobs;
  Families() {
    for (const auto& [name, help] :
         {std::pair{"perseus_job_plan_age_seconds", "Since the assignment of the job was made."},
          {"perseus_job_step_promised_seconds", "Planned time of a step."},
          {"perseus_job_step_measured_seconds", "Measured time of a step."},
          {"perseus_job_step_promised_joules", "Planned energy of a step of all pipelines."},
          {"perseus_job_step_measured_joules", "Measured energy of a step of all pipelines."},
          {"perseus_job_step_baseline_joules",
           "Planned energy of a step of all pipelines at maximum frequency."},
          {"perseus_job_limited_ranks",
           "Ranks whose clock heat, a power brake or another program limited in recent steps."},
          {"perseus_job_last_step_age_seconds", "Since the last step of the job ended."},
          {"perseus_job_ranks", "Attached ranks."},
          {"perseus_job_ranks_running", "Attached ranks that run, on nodes that report."},
          {"perseus_job_ranks_without_lease",
           "Ranks that follow the plan without a lease of their GPU."},
          {"perseus_job_stopped",
           "1 while no rank runs, or while the training has no fresh step, and a rank does not run "
           "or the last step ended 10 minutes ago."},
          {"perseus_job_saving_ratio",
           "Measured saving of energy against maximum frequency. Absent without fresh steps, or if "
           "a rank has no lease."},
          {"perseus_job_needs_person",
           "1 while the job needs a person, for example because its training has stopped."},
          {"perseus_job_promise_broken",
           "1 while the job is over 1 % slower than promised, or uses over 1 % more energy."},
          {"perseus_job_plan_taken_back",
           "1 while the plan of the job is taken back, because it cost throughput."}}) {
      of_jobs.try_emplace(name, registry, name, help);
    }
  }
};

ServerMetrics::ServerMetrics() : families_(std::make_unique<Families>()) {
  // These counters start at 0. If a series began with its first failure, Prometheus would see no
  // increase.
  families_->plannings.Add({{"status", "superseded"}});
  for (const std::string_view status : store::kWordsOf<store::JobStatus>) {
    families_->plannings.Add({{"status", std::string(status)}});
  }
  for (const std::string_view event : store::kWordsOf<store::GuardState>) {
    families_->guards.Add({{"event", std::string(event)}});
  }
  for (const char* what : {"certificates", "identities"}) {
    for (const char* result : {"done", "failed"}) {
      families_->reloads.Add({{"what", what}, {"result", result}});
    }
  }
  for (const char* event : {"suspended", "reinstated"}) families_->notices.Add({{"event", event}});
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

void ServerMetrics::CountReload(const std::string& what, bool is_done) {
  families_->reloads.Add({{"what", what}, {"result", is_done ? "done" : "failed"}}).Increment();
}

void ServerMetrics::Set(const Gauges& gauges) {
  families_->connections.Set(gauges.connections);
  families_->streams.Set(gauges.streams);
  families_->jobs.Set(gauges.jobs);
  Raise(families_->events, gauges.events);
  Raise(families_->refused, gauges.refused_connections);
  Raise(families_->dropped, gauges.dropped_streams);
  Raise(families_->overloads, gauges.overload_refusals);
}

void ServerMetrics::SetReady(bool is_ready) { families_->ready.Set(is_ready ? 1 : 0); }

void ServerMetrics::SetRefusedWrites(std::int64_t count) {
  Raise(families_->refused_writes, count);
}

void ServerMetrics::CountNotice(bool is_suspended) {
  families_->notices.Add({{"event", is_suspended ? "suspended" : "reinstated"}}).Increment();
}

void ServerMetrics::CountGuard(store::GuardState state) {
  families_->guards.Add({{"event", std::string(store::Name(state))}}).Increment();
}

void ServerMetrics::CountEnergy(const telemetry::JudgedEnergy& energy) {
  families_->baseline_energy.Increment(energy.baseline_j);
  families_->measured_energy.Increment(energy.measured_j);
}

void ServerMetrics::SetFleet(const FleetStatus& fleet) {
  Families& to = *families_;
  to.backlog.Set(fleet.planning_backlog);
  to.backlog_age.Set(fleet.planning_wait_s);
  // Sets all states, so that an alert sees 0 and not a missing series.
  for (const char* state : {"following", "pending", "late", "ahead", "stopped", "lost"}) {
    const auto found = fleet.nodes.find(state);
    to.nodes.Set({{"state", state}}, found == fleet.nodes.end() ? 0 : found->second);
  }
  using enum store::StragglerSource;
  for (const auto source : {kReport, kForecast, kDetected}) {
    for (const auto& [state, label] :
         {std::pair("announced", "announced"), std::pair("in force", "in_force"),
          std::pair("suspended", "suspended")}) {
      const auto found = fleet.stragglers.find({source, state});
      to.stragglers.Set({{"source", std::string(store::Name(source))}, {"state", label}},
                        found == fleet.stragglers.end() ? 0 : found->second);
    }
  }
  for (const JobStatus& job : fleet.jobs) {
    for (const auto& [name, value] : job.values) {
      to.of_jobs.at(name).Set({{"key", job.key}}, value);
    }
  }
  to.nodes.End();
  to.stragglers.End();
  for (auto& [name, gauges] : to.of_jobs) gauges.End();
}

std::string ServerMetrics::Format() const {
  return prometheus::TextSerializer().Serialize(families_->registry.Collect());
}

}  // namespace perseus::server
