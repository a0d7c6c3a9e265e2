#include "perseus/device/virtual_device.h"

#include <cmath>
#include <utility>

#include "perseus/device/virtual_node.h"

namespace perseus {
namespace {

using Snapshot = VirtualNodeMemory::Snapshot;

std::vector<int> ToVector(const ClockList& clocks) {
  return {clocks.mhz.begin(), clocks.mhz.begin() + clocks.count};
}

DeviceInfo InfoOf(const VirtualNodeSpec& spec, int gpu) {
  DeviceInfo info;
  info.uuid = VirtualUuid(spec, gpu);
  info.name = spec.gpu_name;
  info.backend = "virtual";
  info.sm_clocks_mhz = ToVector(spec.gpu.sm_clocks);
  info.memory_clocks_mhz = ToVector(spec.gpu.memory_clocks);
  info.default_power_limit_mw = spec.gpu.default_power_limit_mw;
  info.least_power_limit_mw = spec.gpu.least_power_limit_mw;
  info.most_power_limit_mw = spec.gpu.most_power_limit_mw;
  return info;
}

class VirtualDevice final : public Device {
 public:
  VirtualDevice(std::shared_ptr<VirtualNodeMemory> memory, int gpu)
      : memory_(std::move(memory)), gpu_(gpu), info_(InfoOf(memory_->spec(), gpu)) {}

  const DeviceInfo& info() const override { return info_; }
  DeviceResult<Telemetry> Read() override;
  DeviceResult<SettingReading> ReadSetting(Control control) override;
  DeviceResult<void> Apply(Control control, const std::optional<Setting>& setting) override;
  DeviceResult<Effect> ReadEffect(Control control, const std::optional<Setting>& setting) override;

 private:
  DeviceResult<Snapshot> Look();
  DeviceResult<VirtualGpuReading> ReadGpu();
  DeviceResult<void> Check(Control control, const std::optional<Setting>& setting) const;
  tl::unexpected<DeviceError> Gone() const;
  // What the driver answers to a setting that is a possible one.
  DeviceResult<void> Answer(VirtualFaults& faults, Control control) const;

  std::shared_ptr<VirtualNodeMemory> memory_;
  int gpu_;
  DeviceInfo info_;
};

tl::unexpected<DeviceError> VirtualDevice::Gone() const {
  return DeviceFail(
      DeviceErrorKind::kGone,
      "{} is gone: its virtual driver was told to be (it comes back once the fault is "
      "taken away)",
      info_.uuid);
}

DeviceResult<Snapshot> VirtualDevice::Look() {
  const auto snapshot = memory_->Read(gpu_);
  if (!snapshot) return DeviceFail(DeviceErrorKind::kFailed, "{}", snapshot.error().message);
  if (snapshot->cell.faults.is_gone) return Gone();
  return *snapshot;
}

DeviceResult<VirtualGpuReading> VirtualDevice::ReadGpu() {
  const auto snapshot = Look();
  if (!snapshot) return tl::unexpected<DeviceError>(snapshot.error());
  return snapshot->cell.gpu.ReadAt(snapshot->now);
}

DeviceResult<Telemetry> VirtualDevice::Read() {
  const auto reading = ReadGpu();
  if (!reading) return tl::unexpected<DeviceError>(reading.error());
  Telemetry telemetry;
  telemetry.at = reading->at;
  telemetry.power_w = reading->published_power_w;
  telemetry.energy_j = reading->published_energy_j;
  telemetry.temperature_c = static_cast<int>(std::lround(reading->temperature_c));
  telemetry.sm_clock_mhz = reading->sm_clock_mhz;
  telemetry.memory_clock_mhz = reading->memory_clock_mhz;
  telemetry.limits = reading->limits;
  return telemetry;
}

std::optional<Setting> SettingOf(const VirtualGpuReading& reading, Control control) {
  switch (control) {
    case Control::kSmClock:
      return reading.requested_lock;
    case Control::kMemoryClock:
      return reading.memory_lock;
    case Control::kPowerLimit:
      return reading.power_limit;
  }
  return std::nullopt;
}

DeviceResult<SettingReading> VirtualDevice::ReadSetting(Control control) {
  const auto reading = ReadGpu();
  if (!reading) return tl::unexpected<DeviceError>(reading.error());
  return SettingReading{true, SettingOf(*reading, control), ""};
}

DeviceResult<void> VirtualDevice::Check(Control control,
                                        const std::optional<Setting>& setting) const {
  const VirtualGpuModel& model = memory_->spec().gpu;
  const ClockList& clocks =
      control == Control::kMemoryClock ? model.memory_clocks : model.sm_clocks;
  const bool is_limit = control == Control::kPowerLimit;
  if (is_limit ? model.default_power_limit_mw == 0 : clocks.count == 0) {
    return DeviceFail(DeviceErrorKind::kNotSupported, "{} has no {} to set", info_.uuid,
                      NameOf(control));
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
               : fmt::format("those it lists, {} to {} MHz", clocks.lowest(), clocks.highest());
  return DeviceFail(DeviceErrorKind::kInvalid, "{} cannot have {} {} (choose {})", info_.uuid,
                    NameOf(control), Describe(control, setting), choice);
}

DeviceResult<void> VirtualDevice::Answer(VirtualFaults& faults, Control control) const {
  if (faults.is_gone) return Gone();
  if (faults.no_permission) {
    return DeviceFail(DeviceErrorKind::kPermission,
                      "{} does not let this process set its {}: its virtual driver was told so",
                      info_.uuid, NameOf(control));
  }
  if (faults.failing_calls > 0) {
    --faults.failing_calls;
    return DeviceFail(DeviceErrorKind::kFailed,
                      "{} did not take its {}: its virtual driver was told to fail, {} times more",
                      info_.uuid, NameOf(control), faults.failing_calls);
  }
  return {};
}

DeviceResult<void> VirtualDevice::Apply(Control control, const std::optional<Setting>& setting) {
  const auto before = Look();
  if (!before) return tl::unexpected<DeviceError>(before.error());
  if (auto checked = Check(control, setting); !checked) return checked;
  if (const Nanoseconds call_time = before->cell.faults.call_time; call_time > 0) {
    memory_->SleepUntil(before->now + call_time);
  }
  DeviceResult<void> answer;
  const auto updated = memory_->Update(gpu_, [&](VirtualCell& cell, Nanoseconds now) {
    answer = Answer(cell.faults, control);
    if (!answer) return;
    ++cell.writes;
    if (cell.faults.ignores_writes) return;
    switch (control) {
      case Control::kSmClock:
        cell.gpu.RequestLock(setting, now);
        return;
      case Control::kMemoryClock:
        cell.gpu.SetMemoryLock(setting, now);
        return;
      case Control::kPowerLimit:
        cell.gpu.SetPowerLimit(setting, now);
        return;
    }
  });
  if (!updated) return DeviceFail(DeviceErrorKind::kFailed, "{}", updated.error().message);
  return answer;
}

DeviceResult<Effect> VirtualDevice::ReadEffect(Control control,
                                               const std::optional<Setting>& setting) {
  const auto reading = ReadGpu();
  if (!reading) return tl::unexpected<DeviceError>(reading.error());
  Effect effect{EffectState::kPending, reading->sm_clock_mhz, reading->limits};
  if (control != Control::kSmClock) {
    if (SettingOf(*reading, control) == setting) effect.state = EffectState::kInEffect;
    return effect;
  }
  // An idle GPU's clock tells nothing, and a request that is on its way is not in effect.
  if (reading->limits.Has(ClockLimit::kIdle) || reading->lock != setting) return effect;
  const int wanted_mhz = setting ? setting->upper : info_.sm_clocks_mhz.back();
  effect.state =
      reading->sm_clock_mhz < wanted_mhz ? EffectState::kLimited : EffectState::kInEffect;
  return effect;
}

}  // namespace

std::unique_ptr<Device> MakeVirtualDevice(std::shared_ptr<VirtualNodeMemory> memory, int gpu) {
  return std::make_unique<VirtualDevice>(std::move(memory), gpu);
}

}  // namespace perseus
