// The parts of a qualification that read energy and power (qualify_run.h).
#include <fmt/core.h>

#include <algorithm>

#include "perseus/base/statistics.h"
#include "perseus/runtime/qualifier/qualify_run.h"

namespace perseus::qualifier {
namespace {

// The time between two checks of should_stop().
constexpr Nanoseconds kBetweenChecks = 500 * kMillisecond;
// NVML averages the power of some GPUs over a second. So a measurement waits this long after a
// change of load or clock.
constexpr Nanoseconds kPowerSettles = 1'500 * kMillisecond;
constexpr Nanoseconds kLeastPowerWindow = 1'500 * kMillisecond;
constexpr Nanoseconds kLongestWindow = 300 * kSecond;
constexpr int kPowerBlocks = 10;
constexpr int kPowerClocks = 5;
// A power limit makes a clock vary. A GPU keeps a clock if at most this part of its readings is
// below the clock.
constexpr double kMostBelow = 0.05;

// Returns the clocks at which power is measured, from the highest clock down to the far clock.
std::vector<int> ChoosePowerClocks(const std::vector<int>& clocks_mhz) {
  std::vector<int> chosen_mhz;
  for (int i = 0; i < kPowerClocks; ++i) {
    const double part = 1 - (1 - kFarPart) * i / (kPowerClocks - 1);
    chosen_mhz.push_back(NearestTo(clocks_mhz, part * clocks_mhz.back()));
  }
  chosen_mhz.erase(std::unique(chosen_mhz.begin(), chosen_mhz.end()), chosen_mhz.end());
  return chosen_mhz;
}

// Reads all GPUs for `window`.
Result<GpuReadings> ReadFor(QualifyRun& run, Nanoseconds window) {
  GpuReadings all(run.node.devices().size());
  const Nanoseconds end = run.node.clock().Now() + window;
  for (Nanoseconds left = window; left > 0; left = end - run.node.clock().Now()) {
    PERSEUS_RETURN_IF_ERROR(run.CheckStop());
    PERSEUS_ASSIGN_OR_RETURN(const auto read, run.node.Read(std::min(left, kBetweenChecks)));
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].insert(all[i].end(), read[i].begin(), read[i].end());
    }
  }
  return all;
}

// Returns the clock of each GPU in its last reading, ascending.
std::vector<int> LastClocks(const GpuReadings& readings) {
  std::vector<int> clocks_mhz;
  for (const auto& one : readings) {
    if (!one.empty() && one.back().sm_clock_mhz) clocks_mhz.push_back(*one.back().sm_clock_mhz);
  }
  std::sort(clocks_mhz.begin(), clocks_mhz.end());
  return clocks_mhz;
}

// Returns the mean power of one GPU, or nullopt if it is unknown.
std::optional<Estimate> MeanPower(const std::vector<device::Telemetry>& readings) {
  if (readings.empty() || !std::ranges::all_of(readings, HasPower)) return std::nullopt;
  std::optional<Estimate> power;
  if (readings.back().counter == device::CounterState::kUsed) {
    power = PowerByCounter(readings, kPowerBlocks);
  }
  if (!power) {  // Uses power readings, in the same number of blocks.
    std::vector<double> blocks;
    const std::size_t size = std::max<std::size_t>(1, readings.size() / kPowerBlocks);
    for (std::size_t from = 0; from + size <= readings.size(); from += size) {
      double sum = 0;
      for (std::size_t i = from; i < from + size; ++i) sum += *readings[i].power_w;
      blocks.push_back(sum / static_cast<double>(size));
    }
    power = MeanOf(blocks);
  }
  if (power) power->low = std::max(0.0, power->low);
  return power;
}

std::vector<std::optional<Estimate>> PowersOf(const GpuReadings& readings) {
  std::vector<std::optional<Estimate>> powers_w;
  for (const auto& of_gpu : readings) powers_w.push_back(MeanPower(of_gpu));
  return powers_w;
}

// Waits until the power of all GPUs has settled, and then reads them for `window`.
Result<GpuReadings> MeasureWindow(QualifyRun& run, Nanoseconds window) {
  Sleep(run.node.clock(), kPowerSettles);
  return ReadFor(run, window);
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

// Lowers the top of the clocks between which GPUs switch to the highest clock that every GPU keeps,
// by readings under load at the highest clock of the list.
void LowerTop(QualifyRun& run, const GpuReadings& readings) {
  int kept_mhz = run.clocks.top_mhz;
  for (const auto& of_gpu : readings) {
    std::vector<double> clocks_mhz;
    for (const device::Telemetry& one : of_gpu) {
      if (one.sm_clock_mhz) clocks_mhz.push_back(*one.sm_clock_mhz);
    }
    if (const auto low = QuantileOf(std::move(clocks_mhz), kMostBelow)) {
      kept_mhz = std::min(kept_mhz, static_cast<int>(low->value));
    }
  }
  const auto clocks = ChooseSwitchClocks(run.clocks_mhz(), kept_mhz);
  if (!clocks || clocks->top_mhz == run.clocks.top_mhz) return;
  run.clocks = *clocks;
  run.Limit(
      fmt::format("Under load, the GPUs keep at most {} of {} MHz, so clock changes were "
                  "measured from {} MHz on.",
                  clocks->top_mhz, run.clocks_mhz().back(), clocks->top_mhz));
}

struct PowerCase {
  Load load;
  const char* what;
  std::optional<Estimate> hardware_facts::PowerFacts::*field;
};
constexpr PowerCase kPowerCases[] = {
    {Load::kIdle, "idle power", &hardware_facts::PowerFacts::idle_w},
    {Load::kBlocked, "blocking power", &hardware_facts::PowerFacts::blocked_w},
    {Load::kCompute, "busy power", &hardware_facts::PowerFacts::busy_w}};

Result<void> MeasureAt(QualifyRun& run, int clock_mhz, Nanoseconds window) {
  hardware_facts::PowerFacts power;
  power.sm_clock_mhz = clock_mhz;
  if (clock_mhz != 0) PERSEUS_RETURN_IF_ERROR(run.node.LockAll(clock_mhz));
  const std::string at = clock_mhz == 0 ? "" : fmt::format(" at {} MHz", clock_mhz);
  std::vector<int> seen_mhz;
  for (const auto& [load, what, field] : kPowerCases) {
    if (!run.node.WhyNot(load).empty()) continue;
    PERSEUS_RETURN_IF_ERROR(run.node.RunOnAll(load));
    PERSEUS_ASSIGN_OR_RETURN(const auto readings, MeasureWindow(run, window));
    power.*field = run.siblings.Combine(what + at, "W", PowersOf(readings));
    if (load == Load::kCompute) NoteLimits(run, at, readings);
    if (load == Load::kCompute && clock_mhz == run.clocks.top_mhz) LowerTop(run, readings);
    seen_mhz = LastClocks(readings);
  }
  PERSEUS_RETURN_IF_ERROR(run.node.RunOnAll(Load::kIdle));
  if (clock_mhz == 0 && !seen_mhz.empty()) {
    power.sm_clock_mhz = seen_mhz[seen_mhz.size() / 2];
    run.Limit(fmt::format("Power was measured without a locked clock, which stood at {} MHz.",
                          power.sm_clock_mhz));
  }
  if (power.sm_clock_mhz > 0) run.result.facts.power.push_back(power);
  return {};
}

// Finds whether waiting GPUs draw less with a lock of the range from the lowest to the highest
// clock than with a lock of the highest clock. The answer is yes only if every GPU draws less.
Result<void> CompareRangeLock(QualifyRun& run, Nanoseconds window) {
  if (!run.node.WhyNot(Load::kBlocked).empty()) return {};
  // A GPU that waits reaches the highest clock.
  const int lowest_mhz = run.clocks_mhz().front(), highest_mhz = run.clocks_mhz().back();
  PERSEUS_RETURN_IF_ERROR(run.node.RunOnAll(Load::kBlocked));
  PERSEUS_RETURN_IF_ERROR(run.node.LockAll(highest_mhz));
  PERSEUS_ASSIGN_OR_RETURN(const auto exact, MeasureWindow(run, window));
  PERSEUS_RETURN_IF_ERROR(run.node.LockAll({lowest_mhz, highest_mhz}));
  PERSEUS_ASSIGN_OR_RETURN(const auto range, MeasureWindow(run, window));
  PERSEUS_RETURN_IF_ERROR(run.node.LockAll(highest_mhz));
  PERSEUS_RETURN_IF_ERROR(run.node.RunOnAll(Load::kIdle));
  std::vector<double> exact_w, range_w;
  bool saves = true;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const auto with_exact = MeanPower(exact[i]);
    const auto with_range = MeanPower(range[i]);
    if (!with_exact || !with_range) return {};
    saves = saves && with_range->high < with_exact->low;
    exact_w.push_back(with_exact->value);
    range_w.push_back(with_range->value);
  }
  run.result.facts.range_lock_saves = saves;
  if (saves) {
    run.Limit(
        fmt::format("A waiting GPU draws {:.1f} W with a lock from {} to {} MHz, and {:.1f} W "
                    "with a lock at {} MHz.",
                    Median(range_w), lowest_mhz, highest_mhz, Median(exact_w), highest_mhz));
  }
  return {};
}

}  // namespace

Result<void> MeasureCounter(QualifyRun& run, double part) {
  run.Progress("energy counter");
  PERSEUS_RETURN_IF_ERROR(run.node.RunOnAll(run.BusyLoad()));
  PERSEUS_ASSIGN_OR_RETURN(
      const auto readings,
      MeasureWindow(run, std::clamp(run.DurationOf(part), 2 * kSecond, kLongestWindow)));
  PERSEUS_RETURN_IF_ERROR(run.node.RunOnAll(Load::kIdle));
  std::vector<std::optional<Estimate>> periods_ms, biases;
  std::vector<double> resolutions_j;
  for (const auto& of_gpu : readings) {
    const std::string why = of_gpu.empty() ? "" : device::DescribeEnergy(of_gpu.back());
    if (!why.empty()) {
      run.Limit(fmt::format("The energy counter of a GPU was not examined: {}.", why));
      return {};
    }
    const auto findings = ExamineCounter(of_gpu);
    if (!findings) {
      run.Limit("The energy counter changed too rarely to be examined.");
      return {};
    }
    periods_ms.emplace_back(findings->period_ms);
    biases.emplace_back(findings->bias);
    resolutions_j.push_back(findings->resolution_j);
  }
  const auto period_ms = run.siblings.Combine("period of the energy counter", "ms", periods_ms);
  const auto bias = run.siblings.Combine("bias of the energy counter", "%", biases);
  run.result.facts.energy_counter = hardware_facts::EnergyCounterFacts{
      .period_ms = *period_ms, .resolution_j = Median(resolutions_j), .bias = *bias};
  return {};
}

Result<void> MeasurePower(QualifyRun& run, double part) {
  std::vector<int> clocks_mhz = {0};  // The driver chooses.
  if (run.can_set) clocks_mhz = ChoosePowerClocks(run.clocks_mhz());
  const double windows = 3 * static_cast<double>(clocks_mhz.size()) + 2;
  const Nanoseconds window =
      std::clamp(run.DurationOf(part / windows) - kPowerSettles, kLeastPowerWindow, kLongestWindow);
  for (const int clock_mhz : clocks_mhz) {
    run.Progress("power");
    PERSEUS_RETURN_IF_ERROR(MeasureAt(run, clock_mhz, window));
  }
  return run.can_set ? CompareRangeLock(run, window) : Result<void>();
}

}  // namespace perseus::qualifier
