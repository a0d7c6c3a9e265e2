#include "perseus/runtime/agent/slow_reasons.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace perseus::agent {
namespace {

using device::ClockLimit;

// The SM clock that the job requested. Empty if it requested the one from before its lease.
std::optional<device::Setting> PlannedClock(const GpuReport& gpu) {
  const GpuSnapshot& snapshot = gpu.snapshot;
  if (!snapshot.is_serving || !snapshot.setting) return std::nullopt;
  for (const ControlSetting& before : gpu.before) {
    if (before.control == device::Control::kSmClock &&
        before.setting == snapshot.setting->setting) {
      return std::nullopt;
    }
  }
  return snapshot.setting->setting;
}

}  // namespace

std::string_view NameOf(SlowBy reason) {
  switch (reason) {
    case SlowBy::kPlan:
      return "plan";
    case SlowBy::kPower:
      return "power";
    case SlowBy::kTemperature:
      return "temperature";
    case SlowBy::kPowerBrake:
      return "power_brake";
    case SlowBy::kAnotherProgram:
      return "another_program";
    case SlowBy::kUnknown:
      return "unknown";
  }
  return "unknown";
}

std::vector<SlowBy> WhySlow(const GpuReport& gpu) {
  std::vector<SlowBy> reasons;
  const auto& telemetry = gpu.snapshot.telemetry;
  if (!telemetry || gpu.info.sm_clocks_mhz.empty() || telemetry->limits.Has(ClockLimit::kIdle)) {
    return reasons;
  }
  const int top_mhz = gpu.info.sm_clocks_mhz.back();
  if (telemetry->sm_clock_mhz >= top_mhz) return reasons;
  const std::optional<device::Setting> planned = PlannedClock(gpu);
  const bool is_planned = planned && planned->upper < top_mhz;
  if (is_planned) reasons.push_back(SlowBy::kPlan);
  // At its requested clock, the GPU is slow by plan alone.
  const bool is_below = !is_planned || telemetry->sm_clock_mhz < planned->lower;
  const auto add = [&](ClockLimit limit, SlowBy reason) {
    if (is_below && telemetry->limits.Has(limit)) reasons.push_back(reason);
  };
  add(ClockLimit::kPowerCap, SlowBy::kPower);
  add(ClockLimit::kThermal, SlowBy::kTemperature);
  add(ClockLimit::kPowerBrake, SlowBy::kPowerBrake);
  // While the agent sets the clock, a reading may be older than the last change. Then several
  // readings decide (`foreign`).
  if (gpu.snapshot.foreign || (!planned && telemetry->limits.Has(ClockLimit::kSetting))) {
    reasons.push_back(SlowBy::kAnotherProgram);
  }
  add(ClockLimit::kOther, SlowBy::kUnknown);
  return reasons;
}

std::string Describe(const std::vector<SlowBy>& reasons) {
  std::string text;
  for (const SlowBy reason : reasons) {
    if (!text.empty()) text += ", ";
    text += NameOf(reason);
  }
  std::ranges::replace(text, '_', ' ');
  return text;
}

std::string DescribeForeign(const GpuReport& gpu) {
  if (!gpu.snapshot.foreign) return {};
  const ForeignClock& foreign = *gpu.snapshot.foreign;
  const std::string clock = foreign.setting
                                ? device::Describe(device::Control::kSmClock, foreign.setting)
                                : fmt::format("about {} MHz", foreign.sm_clock_mhz);
  return fmt::format("another program has locked the SM clock to {} ({})", clock,
                     foreign.has_yielded ? "the agent sets no clock until it is unlocked"
                                         : "the agent sets the clock of the job again");
}

}  // namespace perseus::agent
