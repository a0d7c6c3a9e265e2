// The state of the agent at one moment, for metrics and for `perseus gpu list`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/runtime/agent/gpu_worker.h"
#include "perseus/runtime/agent/lease_table.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/protocol/messages/messages.h"

namespace perseus::agent {

// How leases end.
enum class LeaseEnd { kReleased, kByHand, kConnectionClosed, kProcessGone, kSilent, kAgentStopped };
// "released", "by_hand", ...
std::string_view NameOf(LeaseEnd end);

struct GpuReport {
  device::DeviceInfo info;
  GpuSnapshot snapshot;
  std::optional<GpuHold> hold;
  std::optional<Lease> lease;  // The lease that holds the GPU.
  // The part of the limit on clock changes that the lease has. 0: no lease, or no limit.
  double most_changes_per_s = 0;
  // The settings that the GPU returns to. Empty if the agent has not changed the GPU.
  std::vector<ControlSetting> before;
};

struct AgentReport {
  std::string version;
  Nanoseconds now = 0;          // CLOCK_MONOTONIC.
  Nanoseconds leases_now = 0;   // The time on the clock of the GPUs, as in Lease::held_since.
  std::vector<GpuReport> gpus;  // By UUID.
  // GPUs that an earlier agent left changed, and that are missing now.
  std::vector<std::string> missing_gpus;
  std::size_t connections = 0;
  std::size_t leases = 0;
  std::map<LeaseEnd, std::uint64_t> ended;
  std::uint64_t malformed = 0;  // The number of malformed messages.
  std::uint64_t refusals = 0;
  std::uint64_t state_failures = 0;  // How often the state could not be written.
};

// ---- Why a GPU runs below its highest clock ----
// The reason may be the plan, or something that an operator has to look at. Without the reason,
// health checks report a GPU that follows a plan as faulty.

enum class SlowBy {
  kPlan,            // The job that holds the GPU requested this clock.
  kPower,           // The power limit.
  kTemperature,     // The GPU is too hot.
  kPowerBrake,      // The board or the rack limits the power.
  kAnotherProgram,  // A clock setting that is not the job's.
  kUnknown,         // The driver gives another reason.
};
inline constexpr SlowBy kAllSlowBy[] = {SlowBy::kPlan,           SlowBy::kPower,
                                        SlowBy::kTemperature,    SlowBy::kPowerBrake,
                                        SlowBy::kAnotherProgram, SlowBy::kUnknown};
// "plan", "power", "temperature", "power_brake", "another_program", "unknown".
std::string_view NameOf(SlowBy reason);

// Returns the reasons in the order of kAllSlowBy. Several may apply at once. Empty for a GPU that
// is idle, at its highest clock, or not readable.
std::vector<SlowBy> WhySlow(const GpuReport& gpu);

// Such as "plan, temperature". Empty if there is no reason.
std::string Describe(const std::vector<SlowBy>& reasons);

// A text for operators: what another program did to the clock. Empty if no other program changed
// the clock.
std::string DescribeForeign(const GpuSnapshot& gpu);

// ---- The report as others see it ----

// The report for `perseus gpu list` and other clients.
protocol::Listing ListingOf(const AgentReport& report);

// The report for Prometheus, in the text exposition format, version 0.0.4. If NVIDIA's DCGM
// exporter has the same metric, uses that exporter's name, labels and unit, so that existing
// dashboards work. docs/agent.md lists all metrics.
std::string FormatMetrics(const AgentReport& report, const std::string& hostname);

}  // namespace perseus::agent
