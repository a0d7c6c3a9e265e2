#include "perseus/runtime/agent/agent_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

namespace perseus::agent {
namespace {

using device::ClockLimit;

// These names are in the order of LeaseEnd and of SlowBy.
constexpr std::string_view kLeaseEnds[] = {"released",     "by_hand", "connection_closed",
                                           "process_gone", "silent",  "agent_stopped"};
constexpr std::string_view kSlowBy[] = {"plan",        "power",           "temperature",
                                        "power_brake", "another_program", "unknown"};

// The SM clock that the job requested. nullopt if the job requested the clock from before its
// lease.
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

std::string SettingInWords(const std::optional<ControlSetting>& setting) {
  return setting ? device::Describe(setting->control, setting->setting) : "";
}

protocol::GpuStatus StatusOf(const GpuReport& gpu, Nanoseconds now) {
  const GpuSnapshot& snapshot = gpu.snapshot;
  protocol::GpuStatus status;
  status.index = gpu.info.index.value_or(-1);
  status.uuid = gpu.info.uuid;
  status.name = gpu.info.name;
  status.measure_only = gpu.info.measure_only;
  status.trouble =
      snapshot.setting_trouble.empty() ? snapshot.reading_trouble : snapshot.setting_trouble;
  if (gpu.hold) {
    status.lease = gpu.hold->lease;
    status.job = gpu.hold->owner.job;
    status.uid = gpu.hold->owner.uid;
    status.pid = gpu.hold->owner.process.pid;
    status.held_s = ToSeconds(now - gpu.hold->since);
    status.is_restoring = gpu.hold->is_restoring;
  }
  if (gpu.lease) status.slowdown = gpu.lease->slowdown;
  status.setting = SettingInWords(snapshot.setting);
  for (const ControlSetting& before : gpu.before) {
    if (before.control == device::Control::kSmClock) status.before = SettingInWords(before);
  }
  if (snapshot.telemetry) {
    status.sm_clock_mhz = snapshot.telemetry->sm_clock_mhz;
    status.power_w = snapshot.telemetry->power_w;
    status.temperature_c = snapshot.telemetry->temperature_c;
  }
  status.switches = snapshot.counts.switches;
  status.postponed = snapshot.counts.postponed;
  status.most_changes_per_s = gpu.most_changes_per_s;
  status.slow_by = Describe(WhySlow(gpu));
  status.overridden = DescribeForeign(snapshot);
  return status;
}

}  // namespace

std::string_view NameOf(LeaseEnd end) { return kLeaseEnds[static_cast<std::size_t>(end)]; }

std::string_view NameOf(SlowBy reason) { return kSlowBy[static_cast<std::size_t>(reason)]; }

std::vector<SlowBy> WhySlow(const GpuReport& gpu) {
  std::vector<SlowBy> reasons;
  const auto& telemetry = gpu.snapshot.telemetry;
  if (!telemetry || gpu.info.sm_clocks_mhz.empty() || telemetry->limits.Has(ClockLimit::kIdle)) {
    return reasons;
  }
  const int top_mhz = gpu.info.sm_clocks_mhz.back();
  if (!telemetry->sm_clock_mhz || *telemetry->sm_clock_mhz >= top_mhz) return reasons;
  const std::optional<device::Setting> planned = PlannedClock(gpu);
  const bool is_planned = planned && planned->upper < top_mhz;
  if (is_planned) reasons.push_back(SlowBy::kPlan);
  // At its requested clock, the GPU is slow only because of the plan.
  const bool is_below = !is_planned || *telemetry->sm_clock_mhz < planned->lower;
  const auto add = [&](ClockLimit limit, SlowBy reason) {
    if (is_below && telemetry->limits.Has(limit)) reasons.push_back(reason);
  };
  add(ClockLimit::kPowerCap, SlowBy::kPower);
  add(ClockLimit::kThermal, SlowBy::kTemperature);
  add(ClockLimit::kPowerBrake, SlowBy::kPowerBrake);
  // While the agent sets the clock, a reading may be older than the last change. In this case,
  // several readings decide (`foreign`).
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

std::string DescribeForeign(const GpuSnapshot& gpu) {
  if (!gpu.foreign) return {};
  const ForeignClock& foreign = *gpu.foreign;
  const std::string clock = foreign.setting
                                ? device::Describe(device::Control::kSmClock, foreign.setting)
                                : fmt::format("about {} MHz", foreign.sm_clock_mhz);
  return fmt::format("another program has locked the SM clock to {} ({})", clock,
                     foreign.has_yielded ? "the agent sets no clock until it is unlocked"
                                         : "the agent sets the clock of the job again");
}

protocol::Listing ListingOf(const AgentReport& report) {
  protocol::Listing listing;
  for (const GpuReport& gpu : report.gpus) {
    listing.gpus.push_back(StatusOf(gpu, report.leases_now));
  }
  return listing;
}

}  // namespace perseus::agent
