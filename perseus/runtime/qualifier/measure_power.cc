#include "perseus/runtime/qualifier/measure_power.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "perseus/base/median.h"
#include "perseus/runtime/qualifier/gpu_readings.h"

namespace perseus::qualifier {
namespace {

using device::Setting;

constexpr Nanoseconds kLeastPowerWindow = 1'500 * kMillisecond;

// What the GPUs did under one load: the power of each, and their readings.
struct PowerWindow {
  std::vector<std::optional<Estimate>> powers_w;
  GpuReadings readings;
};

Result<PowerWindow> MeasureWindow(QualifyRun& run, Nanoseconds window) {
  Sleep(run.node.clock(), kPowerSettles);
  PERSEUS_ASSIGN_OR_RETURN(auto readings, ReadFor(run, window));
  PowerWindow measured;
  for (const auto& of_gpu : readings) measured.powers_w.push_back(MeanPower(of_gpu));
  measured.readings = std::move(readings);
  return measured;
}

void NoteLimits(QualifyRun& run, const std::string& at, const GpuReadings& readings) {
  device::ClockLimits others;
  for (const auto& of_gpu : readings) {
    for (const device::Telemetry& one : of_gpu) {
      for (const auto limit : {device::ClockLimit::kPowerCap, device::ClockLimit::kThermal,
                               device::ClockLimit::kPowerBrake, device::ClockLimit::kOther}) {
        if (one.limits.Has(limit)) others.Add(limit);
      }
    }
  }
  const std::vector<int> clocks_mhz = LastClocks(readings);
  if (others.bits == 0 || clocks_mhz.empty()) return;
  run.Limit(fmt::format("Under load{}, the clock of a GPU is lowered (to {} MHz at last) by: {}.",
                        at, clocks_mhz.front(), device::Describe(others)));
}

Result<void> MeasureAt(QualifyRun& run, int clock_mhz, Nanoseconds window) {
  hardware_facts::PowerFacts power{
      .sm_clock_mhz = clock_mhz, .idle_w = {}, .blocked_w = {}, .busy_w = {}};
  if (clock_mhz != 0) PERSEUS_RETURN_IF_ERROR(run.LockAll(clock_mhz));
  const std::string at = clock_mhz == 0 ? "" : fmt::format(" at {} MHz", clock_mhz);
  std::vector<int> seen_mhz;
  for (const Load load : {Load::kIdle, Load::kBlocked, Load::kCompute}) {
    if (!run.node.WhyNot(load).empty()) continue;
    PERSEUS_RETURN_IF_ERROR(run.RunOnAll(load));
    PERSEUS_ASSIGN_OR_RETURN(const auto measured, MeasureWindow(run, window));
    const auto combine = [&](const char* what) {
      return run.siblings.Combine(what + at, Siblings::Unit::kWatts, measured.powers_w);
    };
    if (load == Load::kIdle) power.idle_w = combine("idle power");
    if (load == Load::kBlocked) power.blocked_w = combine("blocking power");
    if (load == Load::kCompute) {
      power.busy_w = combine("busy power");
      NoteLimits(run, at, measured.readings);
    }
    seen_mhz = LastClocks(measured.readings);
  }
  PERSEUS_RETURN_IF_ERROR(run.RunOnAll(Load::kIdle));
  if (clock_mhz == 0 && !seen_mhz.empty()) {
    power.sm_clock_mhz = seen_mhz[seen_mhz.size() / 2];
    run.Limit(fmt::format("Power was measured without a locked clock, which stood at {} MHz.",
                          power.sm_clock_mhz));
  }
  if (power.sm_clock_mhz > 0) run.result.facts.power.push_back(power);
  return {};
}

// Whether a lock from the lowest to the top clock draws less than a lock at the top clock, while
// the GPUs wait: on every GPU.
Result<void> CompareRangeLock(QualifyRun& run, Nanoseconds window) {
  if (!run.node.WhyNot(Load::kBlocked).empty()) return {};
  const int lowest_mhz = run.node.device(0).info().sm_clocks_mhz.front();
  PERSEUS_RETURN_IF_ERROR(run.RunOnAll(Load::kBlocked));
  PERSEUS_RETURN_IF_ERROR(run.LockAll(run.clocks.top_mhz));
  PERSEUS_ASSIGN_OR_RETURN(const auto exact, MeasureWindow(run, window));
  PERSEUS_RETURN_IF_ERROR(run.LockAll(Setting{lowest_mhz, run.clocks.top_mhz}));
  PERSEUS_ASSIGN_OR_RETURN(const auto range, MeasureWindow(run, window));
  PERSEUS_RETURN_IF_ERROR(run.LockAll(run.clocks.top_mhz));
  PERSEUS_RETURN_IF_ERROR(run.RunOnAll(Load::kIdle));
  std::vector<double> exact_w, range_w;
  bool saves = true;
  for (std::size_t i = 0; i < run.all_gpus.size(); ++i) {
    const auto& with_exact = exact.powers_w[i];
    const auto& with_range = range.powers_w[i];
    if (!with_exact || !with_range) return {};
    saves = saves && with_range->high < with_exact->low;
    exact_w.push_back(with_exact->value);
    range_w.push_back(with_range->value);
  }
  run.result.facts.range_lock_saves = saves;
  if (saves) {
    run.Limit(fmt::format(
        "A waiting GPU draws {:.1f} W with a lock from {} to {} MHz, and {:.1f} W "
        "with a lock at {} MHz.",
        Median(range_w), lowest_mhz, run.clocks.top_mhz, Median(exact_w), run.clocks.top_mhz));
  }
  return {};
}

}  // namespace

Result<void> MeasurePower(QualifyRun& run, PartOfRun part) {
  std::vector<int> clocks_mhz = {0};  // The driver chooses.
  if (run.can_set) clocks_mhz = ChoosePowerClocks(run.node.device(0).info().sm_clocks_mhz);
  const auto count = static_cast<double>(clocks_mhz.size());
  const double windows = 3 * count + 2;
  const Nanoseconds window = std::clamp(run.DurationOf(part.length / windows) - kPowerSettles,
                                        kLeastPowerWindow, kLongestWindow);
  for (std::size_t i = 0; i < clocks_mhz.size(); ++i) {
    run.options.progress("power", part.from + part.length * static_cast<double>(i) / count);
    PERSEUS_RETURN_IF_ERROR(MeasureAt(run, clocks_mhz[i], window));
  }
  return run.can_set ? CompareRangeLock(run, window) : Result<void>();
}

}  // namespace perseus::qualifier
