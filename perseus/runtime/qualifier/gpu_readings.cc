#include "perseus/runtime/qualifier/gpu_readings.h"

#include <algorithm>

namespace perseus::qualifier {
namespace {

constexpr Nanoseconds kBetweenChecks = 500 * kMillisecond;  // Of should_stop().
constexpr int kPowerBlocks = 10;

}  // namespace

Result<GpuReadings> ReadFor(QualifyRun& run, Nanoseconds window) {
  GpuReadings all(run.all_gpus.size());
  const Nanoseconds end = run.node.clock().Now() + window;
  for (Nanoseconds left = window; left > 0; left = end - run.node.clock().Now()) {
    PERSEUS_RETURN_IF_ERROR(run.CheckStop());
    PERSEUS_ASSIGN_OR_RETURN(const auto read,
                             Pass(run.node.Read(run.all_gpus, std::min(left, kBetweenChecks))));
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].insert(all[i].end(), read[i].begin(), read[i].end());
    }
  }
  return all;
}

std::vector<CounterReading> CountersOf(const std::vector<device::Telemetry>& readings) {
  std::vector<CounterReading> counters;
  counters.reserve(readings.size());
  for (const auto& one : readings) counters.push_back({one.at, one.energy_j, one.power_w});
  return counters;
}

std::vector<int> LastClocks(const GpuReadings& readings) {
  std::vector<int> clocks_mhz;
  for (const auto& one : readings) {
    if (!one.empty()) clocks_mhz.push_back(one.back().sm_clock_mhz);
  }
  std::sort(clocks_mhz.begin(), clocks_mhz.end());
  return clocks_mhz;
}

std::optional<Estimate> MeanPower(const std::vector<device::Telemetry>& readings) {
  if (readings.empty()) return std::nullopt;
  std::optional<Estimate> power;
  if (!readings.front().is_energy_integrated) {
    power = PowerByCounter(CountersOf(readings), kPowerBlocks);
  }
  if (!power) {  // Power readings, in as many blocks.
    std::vector<double> blocks;
    const std::size_t size = std::max<std::size_t>(1, readings.size() / kPowerBlocks);
    for (std::size_t from = 0; from + size <= readings.size(); from += size) {
      double sum = 0;
      for (std::size_t i = from; i < from + size; ++i) sum += readings[i].power_w;
      blocks.push_back(sum / static_cast<double>(size));
    }
    power = MeanOf(blocks);
  }
  if (power) power->low = std::max(0.0, power->low);
  return power;
}

}  // namespace perseus::qualifier
