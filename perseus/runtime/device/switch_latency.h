// Measures the time from the driver's "yes" until the GPU runs at the clock. A plan has to take it
// into account (switch_latency_ms).
#pragma once

#include <vector>

#include "perseus/base/clock.h"
#include "perseus/runtime/device/device.h"

namespace perseus::device {

struct SwitchSample {
  int from_mhz = 0;
  int to_mhz = 0;
  Nanoseconds call = 0;  // The driver's call alone.
  // From the call's beginning until the clock was read as asked.
  Nanoseconds latency = 0;
};

struct SwitchLatency {
  std::vector<SwitchSample> samples;
  int unseen = 0;  // Switches whose clock did not come within the timeout.

  // Of the samples' latencies, 0 < part <= 1, the smallest that so many do not exceed. Requires
  // samples.
  Nanoseconds Percentile(double part) const;
};

// Switches the GPU between `clocks_mhz`, each to the next and round again, `rounds` times, and
// reads the clock until it is there. Leaves the last clock set: putting back what was set before is
// the caller's, who has saved it. Fails as the driver does. `timeout`: of one switch.
//
// An idle GPU may not show its clock at all (`unseen`; after three it gives up): measure while
// something runs.
DeviceResult<SwitchLatency> MeasureSwitchLatency(Device& device, const std::vector<int>& clocks_mhz,
                                                 int rounds, Nanoseconds timeout, Clock& clock);

// Some clocks that make for large, middling and small switches: of the GPU's own, from the upper
// half.
std::vector<int> ClocksToMeasure(const DeviceInfo& info);

}  // namespace perseus::device
