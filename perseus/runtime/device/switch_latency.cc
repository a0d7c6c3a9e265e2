#include "perseus/runtime/device/switch_latency.h"

#include <algorithm>
#include <cmath>

namespace perseus::device {
namespace {

// The time between two readings of the clock. A reading takes about as long.
constexpr Nanoseconds kBetweenReadings = 200'000;
// If the first switches are not seen, the others will not be seen either, because the GPU is idle.
constexpr int kMostUnseen = 3;

}  // namespace

Nanoseconds SwitchLatency::Percentile(double part) const {
  std::vector<Nanoseconds> latencies;
  for (const SwitchSample& sample : samples) latencies.push_back(sample.latency);
  std::sort(latencies.begin(), latencies.end());
  const double rank = std::ceil(part * static_cast<double>(latencies.size()));
  return latencies[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

DeviceResult<SwitchLatency> MeasureSwitchLatency(Device& device, const std::vector<int>& clocks_mhz,
                                                 int rounds, Nanoseconds timeout, Clock& clock) {
  SwitchLatency result;
  int from_mhz = 0;
  for (int round = 0; round < rounds; ++round) {
    for (const int to_mhz : clocks_mhz) {
      const Setting setting{to_mhz, to_mhz};
      const Nanoseconds start = clock.Now();
      if (auto applied = device.Apply(Control::kSmClock, setting); !applied) {
        return tl::unexpected<DeviceError>(applied.error());
      }
      const Nanoseconds answered = clock.Now();
      bool is_there = false;
      while (!is_there && clock.Now() - start < timeout) {
        const auto telemetry = device.Read();
        if (!telemetry) return tl::unexpected<DeviceError>(telemetry.error());
        is_there = telemetry->sm_clock_mhz == to_mhz;
        if (!is_there) clock.WaitUntil(clock.Now() + kBetweenReadings);
      }
      // The clock before the first switch is unknown.
      if (!is_there) {
        ++result.unseen;
      } else if (from_mhz != 0) {
        result.samples.push_back({from_mhz, to_mhz, answered - start, clock.Now() - start});
      }
      from_mhz = to_mhz;
      if (result.samples.empty() && result.unseen == kMostUnseen) return result;
    }
  }
  return result;
}

std::vector<int> ClocksToMeasure(const DeviceInfo& info) {
  const std::vector<int>& clocks = info.sm_clocks_mhz;
  if (clocks.size() < 2) return {};
  const std::size_t top = clocks.size() - 1;
  const std::size_t middle = top / 2;
  std::vector<int> chosen = {clocks[top], clocks[middle], clocks[top - 1],
                             clocks[(top + middle) / 2]};
  // A switch from a clock to itself takes no time.
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  if (chosen.size() > 1 && chosen.front() == chosen.back()) chosen.pop_back();
  return chosen;
}

}  // namespace perseus::device
