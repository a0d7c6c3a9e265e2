// The switching latency of one GPU, measured without an agent and as safely as with one: what was
// set before is saved first, and put back afterwards, before SIGINT or SIGTERM end the process;
// should it be killed meanwhile, the next agent puts it back.
#pragma once

#include <filesystem>
#include <string>

#include "perseus/base/result.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/device/switch_latency.h"

namespace perseus::agent {

struct LatencyCheck {
  std::filesystem::path state;  // The agent's.
  std::string boot_id;
  int rounds = 8;
  Nanoseconds timeout = 500'000'000;  // Of one switch.
};

// Fails (kSystem) if an agent runs on that state, if it still has to give the GPU back, if somebody
// seems to have locked the clock and the driver cannot tell to what, and as the driver does.
Result<device::SwitchLatency> MeasureSafely(device::Device& device, const LatencyCheck& check);

}  // namespace perseus::agent
