// The state of the agent at one moment, for metrics and for `perseus gpu list`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "perseus/runtime/agent/gpu_worker.h"
#include "perseus/runtime/agent/lease_table.h"
#include "perseus/runtime/device/device.h"

namespace perseus::agent {

// How leases end.
enum class LeaseEnd { kReleased, kByHand, kConnectionClosed, kProcessGone, kSilent, kAgentStopped };
// "released", "by_hand", ...
std::string_view NameOf(LeaseEnd end);

struct GpuReport {
  device::DeviceInfo info;
  GpuSnapshot snapshot;
  std::optional<GpuHold> hold;
  std::optional<Lease> lease;     // The lease that holds the GPU.
  double most_changes_per_s = 0;  // The share of the lease in the limit. 0: no lease, or no limit.
  // The settings that the GPU returns to. Empty if the agent has not changed it.
  std::vector<ControlSetting> before;
};

struct AgentReport {
  std::string version;
  Nanoseconds now = 0;          // CLOCK_MONOTONIC.
  Nanoseconds leases_now = 0;   // The clock of the GPUs, as in Lease::held_since.
  std::vector<GpuReport> gpus;  // By UUID.
  // GPUs that an earlier agent left changed, and that are missing now.
  std::vector<std::string> missing_gpus;
  std::size_t connections = 0;
  std::size_t leases = 0;
  std::map<LeaseEnd, std::uint64_t> ended;
  std::uint64_t malformed = 0;  // Counts messages.
  std::uint64_t refusals = 0;
  std::uint64_t state_failures = 0;  // How often the state could not be written.
};

}  // namespace perseus::agent
