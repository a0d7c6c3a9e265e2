// Measures the switch latency of one GPU without an agent, and as safely as with one. It saves
// the settings first, and restores them afterwards, also before SIGINT or SIGTERM end the process.
// If the process is killed meanwhile, the next agent restores them.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
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
  // Starts a load on the GPU, because an idle GPU does not show its clock. It is called while
  // signals are held back, so that threads of a driver inherit this. What it returns is destroyed
  // after the measurement, which ends the load.
  std::function<std::shared_ptr<void>()> start_load = [] { return nullptr; };
};

// Fails (kSystem) if an agent runs on this state, if the GPU still has to be restored, if the clock
// is locked and the driver does not report to what, or if the driver fails.
Result<device::SwitchLatency> MeasureSafely(device::Device& device, const LatencyCheck& check);

}  // namespace perseus::agent
