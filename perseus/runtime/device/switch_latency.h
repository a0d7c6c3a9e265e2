// Measures the time from the request of a clock until the GPU runs at it. Plans have to take it
// into account (switch_latency_ms).
#pragma once

#include <vector>

#include "perseus/base/clock.h"
#include "perseus/runtime/device/device.h"

namespace perseus::device {

struct SwitchSample {
  int from_mhz = 0;
  int to_mhz = 0;
  Nanoseconds call = 0;  // Of the driver's call.
  // From the begin of the call until a reading shows the new clock.
  Nanoseconds latency = 0;
};

struct SwitchLatency {
  std::vector<SwitchSample> samples;
  int unseen = 0;  // Switches whose clock was not read within the timeout.

  // The smallest latency that is at least as large as this part of the samples, 0 < part <= 1.
  // Requires samples.
  Nanoseconds Percentile(double part) const;
};

// Switches the GPU from each of `clocks_mhz` to the next one and from the last one to the first,
// `rounds` times, and reads the clock until it has changed. `timeout` is for one switch. It leaves
// the last clock set, so the caller has to save and restore the setting. Fails as the driver does.
//
// An idle GPU may not show its clock at all. After three unseen switches, the function gives up. So
// measure while a program runs.
DeviceResult<SwitchLatency> MeasureSwitchLatency(Device& device, const std::vector<int>& clocks_mhz,
                                                 int rounds, Nanoseconds timeout, Clock& clock);

// Some clocks of the GPU's upper half for large, medium and small switches.
std::vector<int> ClocksToMeasure(const DeviceInfo& info);

}  // namespace perseus::device
