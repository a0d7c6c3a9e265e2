#include "perseus/runtime/agent/gpu_list.h"

#include <optional>
#include <string>
#include <utility>

#include "perseus/runtime/agent/slow_reasons.h"

namespace perseus::agent {
namespace {

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
  status.overridden = DescribeForeign(gpu);
  return status;
}

}  // namespace

protocol::Listing ListingOf(const AgentReport& report) {
  protocol::Listing listing;
  for (const GpuReport& gpu : report.gpus) {
    listing.gpus.push_back(StatusOf(gpu, report.leases_now));
  }
  return listing;
}

}  // namespace perseus::agent
