// Readings of all GPUs at once, and what they say about energy and power.
//
// Thread safety: pure functions, except ReadFor(), which is for the thread of the node.
#pragma once

#include <optional>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/qualifier/energy_counter.h"
#include "perseus/runtime/qualifier/qualify_run.h"
#include "perseus/runtime/qualifier/statistics.h"

namespace perseus::qualifier {

// NVML averages the power of some GPUs over a second. Wait so long after a change of load or clock.
inline constexpr Nanoseconds kPowerSettles = 1'500 * kMillisecond;
inline constexpr Nanoseconds kLongestWindow = 300 * kSecond;

// The telemetry of each GPU.
using GpuReadings = std::vector<std::vector<device::Telemetry>>;

// Reads all GPUs for that long.
Result<GpuReadings> ReadFor(QualifyRun& run, Nanoseconds window);

std::vector<CounterReading> CountersOf(const std::vector<device::Telemetry>& readings);

// The clock of each GPU in its last reading, ascending.
std::vector<int> LastClocks(const GpuReadings& readings);

// The mean power of one GPU. Empty without readings.
std::optional<Estimate> MeanPower(const std::vector<device::Telemetry>& readings);

}  // namespace perseus::qualifier
