#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <utility>

#include "perseus/runtime/agent/agent_report.h"

namespace perseus::agent {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

class Families {
 public:
  // Adds a value to the family of that name. The first value creates the family.
  void Gauge(const char* name, const char* help, Labels labels, double value) {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.gauge.value = value;
    Of(name, help, MetricType::Gauge).metric.push_back(std::move(metric));
  }
  // Adds nothing if the value is unknown.
  template <typename Value>
  void Gauge(const char* name, const char* help, Labels labels, const std::optional<Value>& value) {
    if (value) Gauge(name, help, std::move(labels), static_cast<double>(*value));
  }
  void Counter(const char* name, const char* help, Labels labels, std::uint64_t value) {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.counter.value = static_cast<double>(value);
    Of(name, help, MetricType::Counter).metric.push_back(std::move(metric));
  }
  void Histogram(const char* name, const char* help, Labels labels, const LatencyHistogram& times) {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.histogram.sample_count = times.count();
    metric.histogram.sample_sum = ToSeconds(times.sum());
    std::uint64_t cumulative = 0;
    for (std::size_t i = 0; i < times.counts().size(); ++i) {
      cumulative += times.counts()[i];
      const double bound = i < LatencyHistogram::kBounds.size()
                               ? ToSeconds(LatencyHistogram::kBounds[i])
                               : std::numeric_limits<double>::infinity();
      metric.histogram.bucket.push_back({cumulative, bound});
    }
    Of(name, help, MetricType::Histogram).metric.push_back(std::move(metric));
  }

  std::string Format() const {
    std::ostringstream text;
    prometheus::TextSerializer().Serialize(text, families_);
    return text.str();
  }

 private:
  MetricFamily& Of(const char* name, const char* help, MetricType type) {
    for (MetricFamily& family : families_) {
      if (family.name == name) return family;
    }
    MetricFamily family;
    family.name = name;
    family.help = help;
    family.type = type;
    return families_.emplace_back(std::move(family));
  }

  std::vector<MetricFamily> families_;
};

Labels With(Labels labels, const char* name, const char* value) {
  labels.push_back({name, value});
  return labels;
}

// Adds the driver's readings, with the names of DCGM's exporter.
void AddReadings(Families& families, const Labels& labels, const device::Telemetry& telemetry) {
  families.Gauge("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", labels,
                 telemetry.sm_clock_mhz);
  families.Gauge("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", labels,
                 telemetry.memory_clock_mhz);
  families.Gauge("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", labels,
                 telemetry.temperature_c);
  families.Gauge("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", labels, telemetry.power_w);
  // The energy is a gauge, because promtool requires _total at the end of a counter's name.
  if (telemetry.energy_j) {
    families.Gauge("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
                   "Total energy consumption since boot (in mJ).", labels,
                   *telemetry.energy_j * kMillijoulesPerJoule);
  }
  for (const device::CounterState state : device::kAllCounterStates) {
    families.Gauge("perseus_gpu_energy_meter",
                   "Whether the energy counter is used, or why not (then power is integrated).",
                   With(labels, "state", NameOf(state).data()), telemetry.counter == state ? 1 : 0);
  }
  families.Counter("perseus_gpu_energy_falls_total",
                   "How often the energy counter fell: the energy of this window is not counted.",
                   labels, telemetry.counter_falls);
  families.Gauge("perseus_gpu_power_of_module",
                 "Whether power and energy are those of a module with another GPU.", labels,
                 telemetry.scope == device::PowerScope::kModule ? 1 : 0);
  for (const auto& [limit, name] : device::kHoldingDown) {
    families.Gauge("perseus_gpu_clock_limited",
                   "Whether the driver keeps the clock below the requested one, and why.",
                   With(labels, "reason", name.data()), telemetry.limits.Has(limit) ? 1 : 0);
  }
}

void AddLease(Families& families, const Labels& labels, const GpuReport& gpu, Nanoseconds now) {
  families.Gauge("perseus_gpu_leased", "Whether a job holds the GPU's clocks.", labels,
                 gpu.lease ? 1 : 0);
  families.Gauge("perseus_gpu_restoring", "Whether the GPU was released, but is not restored yet.",
                 labels, gpu.snapshot.is_restoring ? 1 : 0);
  if (!gpu.lease) return;
  // A scrape sets the label `job` itself.
  const Labels job = With(labels, "key", gpu.lease->owner.job.c_str());
  families.Gauge("perseus_gpu_lease_age_seconds", "How long the job has held the GPU's clocks.",
                 job, ToSeconds(now - gpu.lease->held_since));
  families.Gauge("perseus_gpu_intended_slowdown_ratio",
                 "How many times as long an iteration takes on purpose: above 1 is a plan, not a "
                 "fault.",
                 job, gpu.lease->slowdown);
  if (gpu.snapshot.setting && gpu.snapshot.setting->setting) {
    families.Gauge("perseus_gpu_intended_sm_clock_hertz",
                   "The last SM clock that the job requested.", job,
                   static_cast<double>(gpu.snapshot.setting->setting->upper * kHertzPerMegahertz));
  }
}

void AddSlowness(Families& families, const Labels& labels, const GpuReport& gpu) {
  const std::vector<SlowBy> reasons = WhySlow(gpu);
  for (const SlowBy reason : kAllSlowBy) {
    const bool holds = std::find(reasons.begin(), reasons.end(), reason) != reasons.end();
    families.Gauge("perseus_gpu_slow",
                   "Whether the GPU runs below its highest clock, and why: only plan is intended.",
                   With(labels, "reason", NameOf(reason).data()), holds ? 1 : 0);
  }
  const auto& foreign = gpu.snapshot.foreign;
  families.Gauge("perseus_gpu_overridden",
                 "Whether another program's lock has replaced the clock of the job.", labels,
                 foreign ? 1 : 0);
  const GpuCounts& counts = gpu.snapshot.counts;
  for (const auto& [change, count] :
       {std::pair{"locked", counts.foreign_locks}, std::pair{"unlocked", counts.foreign_resets}}) {
    families.Counter("perseus_gpu_overrides_total",
                     "How often another program changed the clock of a job.",
                     With(labels, "change", change), count);
  }
}

void AddCounts(Families& families, const Labels& labels, const GpuSnapshot& snapshot) {
  const GpuCounts& counts = snapshot.counts;
  families.Counter("perseus_gpu_clock_switches_total", "Clocks of a job that the driver accepted.",
                   labels, counts.switches);
  struct Dropped {
    const char* reason;
    std::uint64_t count;
  };
  for (const Dropped& dropped :
       {Dropped{"overtaken", counts.coalesced}, Dropped{"set_already", counts.no_ops},
        Dropped{"unknown_clock", counts.refused}, Dropped{"driver_failed", counts.failed},
        Dropped{"yielded", counts.yielded}}) {
    families.Counter("perseus_gpu_clock_requests_dropped_total",
                     "Requests of a job that changed no clock, and why.",
                     With(labels, "reason", dropped.reason), dropped.count);
  }
  families.Counter("perseus_gpu_clock_requests_postponed_total",
                   "Requests of a lower clock that waited for the limit on changes.", labels,
                   counts.postponed);
  families.Counter("perseus_gpu_clock_switches_seen_total",
                   "Switches that were read back, by their effect.",
                   With(labels, "effect", "in_effect"), counts.in_effect);
  families.Counter("perseus_gpu_clock_switches_seen_total",
                   "Switches that were read back, by their effect.",
                   With(labels, "effect", "limited"), counts.limited);
  families.Counter("perseus_gpu_restores_total", "How often the GPU was restored.", labels,
                   counts.restores);
  families.Counter("perseus_gpu_restore_failures_total", "Failed attempts to restore a control.",
                   labels, counts.restore_failures);
  families.Histogram("perseus_gpu_request_to_driver_seconds",
                     "From a job's request to the call of the driver.", labels,
                     snapshot.request_to_call);
  families.Histogram("perseus_gpu_driver_call_seconds", "How long the driver's calls took.", labels,
                     snapshot.call);
}

void AddGpu(Families& families, const GpuReport& gpu, std::size_t index,
            const std::string& hostname, const AgentReport& report) {
  // These are DCGM's labels without modelName, because Prometheus' linter rejects modelName.
  const Labels labels = {
      {"gpu", std::to_string(gpu.info.minor_number.value_or(static_cast<int>(index)))},
      {"UUID", gpu.info.uuid},
      {"pci_bus_id", gpu.info.pci_bus_id},
      {"Hostname", hostname}};
  families.Gauge(
      "perseus_gpu_info", "The model of the GPU, and its driver.",
      With(With(labels, "model", gpu.info.name.c_str()), "backend", gpu.info.backend.c_str()), 1);
  const GpuSnapshot& snapshot = gpu.snapshot;
  families.Gauge("perseus_gpu_up", "Whether the driver answers for the GPU.", labels,
                 snapshot.telemetry ? 1 : 0);
  families.Gauge("perseus_gpu_settable", "Whether the GPU's clocks can be set.", labels,
                 gpu.info.measure_only.empty() ? 1 : 0);
  families.Gauge(
      "perseus_gpu_driver_call_age_seconds",
      "For how long the driver has not returned from a call.", labels,
      snapshot.in_driver_since == 0 ? 0 : ToSeconds(report.now - snapshot.in_driver_since));
  if (snapshot.telemetry) AddReadings(families, labels, *snapshot.telemetry);
  AddLease(families, labels, gpu, report.leases_now);
  AddSlowness(families, labels, gpu);
  AddCounts(families, labels, snapshot);
}

void AddAgent(Families& families, const AgentReport& report) {
  families.Gauge("perseus_agent_info", "The agent's version.", {{"version", report.version}}, 1);
  families.Gauge("perseus_agent_connections", "Clients that are connected.", {},
                 static_cast<double>(report.connections));
  families.Gauge("perseus_agent_leases", "Leases that are held.", {},
                 static_cast<double>(report.leases));
  families.Gauge("perseus_agent_missing_gpus", "GPUs that have to be restored, but are missing.",
                 {}, static_cast<double>(report.missing_gpus.size()));
  for (const LeaseEnd end : {LeaseEnd::kReleased, LeaseEnd::kByHand, LeaseEnd::kConnectionClosed,
                             LeaseEnd::kProcessGone, LeaseEnd::kSilent, LeaseEnd::kAgentStopped}) {
    const auto count = report.ended.find(end);
    families.Counter("perseus_agent_leases_ended_total", "Leases that have ended, by how.",
                     {{"how", std::string(NameOf(end))}},
                     count == report.ended.end() ? 0 : count->second);
  }
  families.Counter("perseus_agent_malformed_messages_total", "Messages that were invalid.", {},
                   report.malformed);
  families.Counter("perseus_agent_refusals_total", "Requests that were refused.", {},
                   report.refusals);
  families.Counter("perseus_agent_state_failures_total",
                   "How often the state could not be written to disk.", {}, report.state_failures);
}

}  // namespace

std::string FormatMetrics(const AgentReport& report, const std::string& hostname) {
  Families families;
  AddAgent(families, report);
  for (std::size_t i = 0; i < report.gpus.size(); ++i) {
    AddGpu(families, report.gpus[i], i, hostname, report);
  }
  return families.Format();
}

}  // namespace perseus::agent
