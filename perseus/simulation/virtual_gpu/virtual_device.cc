#include "perseus/simulation/virtual_gpu/virtual_device.h"

#include <cmath>
#include <utility>

#include "perseus/simulation/virtual_gpu/virtual_node.h"

namespace perseus::virtual_gpu {
namespace {

std::vector<int> ToVector(const ClockList& clocks) {
  return {clocks.mhz.begin(), clocks.mhz.begin() + clocks.count};
}

device::DeviceInfo InfoOf(const VirtualNodeSpec& spec, int gpu) {
  device::DeviceInfo info;
  info.uuid = VirtualUuid(spec, gpu);
  info.name = spec.gpu_name;
  info.backend = "virtual";
  info.device_file = DeviceFileOf(spec, gpu);
  info.index = gpu;
  info.sm_clocks_mhz = ToVector(spec.gpu.sm_clocks);
  info.memory_clocks_mhz = ToVector(spec.gpu.memory_clocks);
  info.default_power_limit_mw = spec.gpu.default_power_limit_mw;
  info.least_power_limit_mw = spec.gpu.least_power_limit_mw;
  info.most_power_limit_mw = spec.gpu.most_power_limit_mw;
  return info;
}

class VirtualDevice final : public device::Device {
 public:
  VirtualDevice(std::shared_ptr<VirtualNodeMemory> memory, int gpu)
      : memory_(std::move(memory)), gpu_(gpu), info_(InfoOf(memory_->spec(), gpu)) {}

  const device::DeviceInfo& info() const override { return info_; }
  device::DeviceResult<device::Telemetry> Read() override;
  device::DeviceResult<device::SettingReading> ReadSetting(device::Control control) override;
  device::DeviceResult<void> Apply(device::Control control,
                                   const std::optional<device::Setting>& setting) override;
  device::DeviceResult<device::Effect> ReadEffect(
      device::Control control, const std::optional<device::Setting>& setting) override;

 private:
  device::DeviceResult<VirtualGpuReading> ReadGpu();
  device::DeviceResult<void> Check(device::Control control,
                                   const std::optional<device::Setting>& setting) const;

  std::shared_ptr<VirtualNodeMemory> memory_;
  int gpu_;
  device::DeviceInfo info_;
};

device::DeviceResult<VirtualGpuReading> VirtualDevice::ReadGpu() {
  const auto snapshot = memory_->Read(gpu_);
  if (!snapshot)
    return device::DeviceFail(device::DeviceErrorKind::kFailed, "{}", snapshot.error().message);
  return snapshot->cell.gpu.ReadAt(snapshot->now);
}

device::DeviceResult<device::Telemetry> VirtualDevice::Read() {
  const auto reading = ReadGpu();
  if (!reading) return tl::unexpected<device::DeviceError>(reading.error());
  device::Telemetry telemetry;
  telemetry.at = reading->at;
  telemetry.power_w = reading->published_power_w;
  telemetry.energy_j = reading->published_energy_j;
  telemetry.temperature_c = static_cast<int>(std::lround(reading->temperature_c));
  telemetry.sm_clock_mhz = reading->sm_clock_mhz;
  telemetry.memory_clock_mhz = reading->memory_clock_mhz;
  telemetry.limits = reading->limits;
  return telemetry;
}

std::optional<device::Setting> SettingOf(const VirtualGpuReading& reading,
                                         device::Control control) {
  switch (control) {
    case device::Control::kSmClock:
      return reading.requested_lock;
    case device::Control::kMemoryClock:
      return reading.memory_lock;
    case device::Control::kPowerLimit:
      return reading.power_limit;
  }
  return std::nullopt;
}

device::DeviceResult<device::SettingReading> VirtualDevice::ReadSetting(device::Control control) {
  const auto reading = ReadGpu();
  if (!reading) return tl::unexpected<device::DeviceError>(reading.error());
  return device::SettingReading{true, SettingOf(*reading, control), ""};
}

device::DeviceResult<void> VirtualDevice::Check(
    device::Control control, const std::optional<device::Setting>& setting) const {
  const VirtualGpuModel& model = memory_->spec().gpu;
  const ClockList& clocks =
      control == device::Control::kMemoryClock ? model.memory_clocks : model.sm_clocks;
  const bool is_limit = control == device::Control::kPowerLimit;
  if (is_limit ? model.default_power_limit_mw == 0 : clocks.count == 0) {
    return device::DeviceFail(device::DeviceErrorKind::kNotSupported, "{} has no {} to set",
                              info_.uuid, device::NameOf(control));
  }
  if (!setting) return {};
  const bool is_known = is_limit ? setting->lower == setting->upper &&
                                       setting->lower >= model.least_power_limit_mw &&
                                       setting->upper <= model.most_power_limit_mw
                                 : setting->lower <= setting->upper && clocks.Has(setting->lower) &&
                                       clocks.Has(setting->upper);
  if (is_known) return {};
  const std::string choice =
      is_limit ? fmt::format("{:g} to {:g} W", model.least_power_limit_mw / 1000.0,
                             model.most_power_limit_mw / 1000.0)
               : fmt::format("a listed clock, {} to {} MHz", clocks.lowest(), clocks.highest());
  return device::DeviceFail(device::DeviceErrorKind::kInvalid, "{} cannot have {} {} (choose {})",
                            info_.uuid, device::NameOf(control), device::Describe(control, setting),
                            choice);
}

device::DeviceResult<void> VirtualDevice::Apply(device::Control control,
                                                const std::optional<device::Setting>& setting) {
  if (auto checked = Check(control, setting); !checked) return checked;
  const auto updated = memory_->Update(gpu_, [&](VirtualCell& cell, Nanoseconds now) {
    ++cell.writes;
    switch (control) {
      case device::Control::kSmClock:
        cell.gpu.RequestLock(setting, now);
        return;
      case device::Control::kMemoryClock:
        cell.gpu.SetMemoryLock(setting, now);
        return;
      case device::Control::kPowerLimit:
        cell.gpu.SetPowerLimit(setting, now);
        return;
    }
  });
  if (!updated)
    return device::DeviceFail(device::DeviceErrorKind::kFailed, "{}", updated.error().message);
  return {};
}

device::DeviceResult<device::Effect> VirtualDevice::ReadEffect(
    device::Control control, const std::optional<device::Setting>& setting) {
  const auto reading = ReadGpu();
  if (!reading) return tl::unexpected<device::DeviceError>(reading.error());
  device::Effect effect{device::EffectState::kPending, reading->sm_clock_mhz, reading->limits};
  if (control != device::Control::kSmClock) {
    if (SettingOf(*reading, control) == setting) effect.state = device::EffectState::kInEffect;
    return effect;
  }
  // The clock of an idle GPU says nothing, and a request that has not landed is not in effect.
  if (reading->limits.Has(device::ClockLimit::kIdle) || reading->lock != setting) return effect;
  const int wanted_mhz = setting ? setting->upper : info_.sm_clocks_mhz.back();
  effect.state = reading->sm_clock_mhz < wanted_mhz ? device::EffectState::kLimited
                                                    : device::EffectState::kInEffect;
  return effect;
}

}  // namespace

std::unique_ptr<device::Device> MakeVirtualDevice(std::shared_ptr<VirtualNodeMemory> memory,
                                                  int gpu) {
  return std::make_unique<VirtualDevice>(std::move(memory), gpu);
}

}  // namespace perseus::virtual_gpu
