// Measures the switch latency of one GPU without an agent, and as safely as with one. It saves
// the settings first, and restores them afterwards, also before SIGINT or SIGTERM end the process.
// If the process is killed meanwhile, the next agent restores them.
#pragma once

#include <filesystem>
#include <string>

#include "perseus/base/result.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/device/switch_latency.h"

namespace perseus::agent {

struct LatencyCheck {
  std::filesystem::path state;  // The state file of the agent.
  std::string boot_id;
  int rounds = 8;
  Nanoseconds timeout = 500'000'000;  // Of one switch.
};

// Fails (kSystem) if an agent runs on this state, if the GPU still has to be restored, if the clock
// is locked and the driver does not report to what, or if the driver fails.
Result<device::SwitchLatency> MeasureSafely(device::Device& device, const LatencyCheck& check);

}  // namespace perseus::agent
