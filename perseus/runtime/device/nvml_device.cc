#include "perseus/runtime/device/nvml_device.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace perseus::device {
namespace {

std::string_view Remedy(DeviceErrorKind kind, int code) {
  switch (kind) {
    case DeviceErrorKind::kPermission:
      return code == nvml::kOperatingSystem
                 ? " (give this process access to the GPU's /dev/nvidia files: cgroup, container)"
                 : " (run the agent as root; in a container, with --cap-add SYS_ADMIN as well)";
    case DeviceErrorKind::kNotSupported:
      return " (this GPU, or the version of its driver, has no such call)";
    case DeviceErrorKind::kGone:
      return code == nvml::kGpuIsLost || code == nvml::kResetRequired
                 ? " (reset it with nvidia-smi --gpu-reset, or reboot; see dmesg for the Xid)"
                 : " (it is looked for again at the next call)";
    case DeviceErrorKind::kInvalid:
    case DeviceErrorKind::kFailed:
      return "";
  }
  return "";
}

ClockLimits LimitsOf(unsigned long long reasons) {
  static constexpr std::pair<unsigned long long, ClockLimit> kKnown[] = {
      {nvml::kReasonIdle, ClockLimit::kIdle},
      {nvml::kReasonSetting, ClockLimit::kSetting},
      {nvml::kReasonPowerCap, ClockLimit::kPowerCap},
      {nvml::kReasonThermal, ClockLimit::kThermal},
      {nvml::kReasonHardwareThermal, ClockLimit::kThermal},
      {nvml::kReasonPowerBrake, ClockLimit::kPowerBrake}};
  // "Hardware slowdown" alone does not say why. With one of these two it adds nothing.
  if ((reasons & (nvml::kReasonHardwareThermal | nvml::kReasonPowerBrake)) != 0) {
    reasons &= ~nvml::kReasonHardware;
  }
  ClockLimits limits;
  for (const auto& [bit, limit] : kKnown) {
    if ((reasons & bit) == 0) continue;
    limits.Add(limit);
    reasons &= ~bit;
  }
  if (reasons != 0) limits.Add(ClockLimit::kOther);
  return limits;
}

EffectState ClockEffect(int mhz, ClockLimits limits, const std::optional<Setting>& setting,
                        const std::vector<int>& clocks) {
  // The clock of an idle GPU shows the load, not the setting.
  if (limits.Has(ClockLimit::kIdle)) return EffectState::kPending;
  const int top = clocks.empty() ? mhz : clocks.back();
  const int lower = setting ? setting->lower : top;
  const int upper = setting ? setting->upper : top;
  if (mhz >= lower && mhz <= upper) return EffectState::kInEffect;
  if (mhz < lower && IsHeldDown(limits)) return EffectState::kLimited;
  return EffectState::kPending;
}

// A text if the clock looks as if a program had locked it. Otherwise empty.
std::string LockHint(std::string_view clock, int mhz, ClockLimits limits,
                     const std::vector<int>& clocks) {
  if (clocks.empty() || mhz >= clocks.back()) return {};
  if (limits.Has(ClockLimit::kSetting)) {
    return fmt::format(
        "the {} stands at {} of {} MHz, and the driver names a clock setting as the reason", clock,
        mhz, clocks.back());
  }
  if (limits.Has(ClockLimit::kIdle) || IsHeldDown(limits)) return {};
  return fmt::format("the {} stands at {} of {} MHz, and the driver names no reason for it", clock,
                     mhz, clocks.back());
}

}  // namespace

NvmlDevice::NvmlDevice(std::shared_ptr<NvmlLibrary> library, DeviceInfo info)
    : library_(std::move(library)), info_(std::move(info)) {}

tl::unexpected<DeviceError> NvmlDevice::Failure(const NvmlLibrary::Visit& visit, NvmlUse use,
                                                std::string_view what, int code) {
  const DeviceErrorKind kind = KindOfNvmlCode(code, use);
  if (kind == DeviceErrorKind::kGone) {
    const bool is_gpu = code == nvml::kGpuIsLost || code == nvml::kResetRequired ||
                        code == nvml::kNotFound || code == nvml::kGpuNotFound;
    library_->ReportGone(visit.generation(),
                         is_gpu ? NvmlLibrary::Gone::kGpu : NvmlLibrary::Gone::kDriver);
  }
  return DeviceFail(kind, "{}: cannot {}: {}{}", info_.uuid, what, library_->Describe(code),
                    Remedy(kind, code));
}

template <typename... Parameters, typename... Arguments>
DeviceResult<void> NvmlDevice::Call(const Session& session, NvmlUse use, std::string_view what,
                                    int (*function)(nvml::Handle, Parameters...),
                                    Arguments... arguments) {
  const int code = function == nullptr ? static_cast<int>(nvml::kFunctionNotFound)
                                       : function(session.handle, arguments...);
  if (code == nvml::kSuccess) return {};
  return Failure(session.visit, use, what, code);
}

DeviceResult<NvmlDevice::Session> NvmlDevice::Begin() {
  DeviceResult<NvmlLibrary::Visit> visit = library_->Enter();
  if (!visit) {
    return DeviceFail(visit.error().kind, "{}: {}", info_.uuid, visit.error().message);
  }
  {
    const std::lock_guard lock(mutex_);
    if (handle_generation_ == visit->generation()) return Session{*std::move(visit), handle_};
  }
  nvml::Handle handle = nullptr;
  const int code = visit->nvml().GetHandleByUUID(info_.uuid.c_str(), &handle);
  // An "invalid argument" here means that the driver does not know the UUID.
  if (code != nvml::kSuccess) return Failure(*visit, NvmlUse::kRead, "find the GPU", code);
  const std::lock_guard lock(mutex_);
  handle_ = handle;
  handle_generation_ = visit->generation();
  return Session{*std::move(visit), handle};
}

DeviceResult<unsigned> NvmlDevice::ReadSmClock(const Session& session) {
  unsigned mhz = 0;
  const DeviceResult<void> read = Call(session, NvmlUse::kRead, "read the SM clock",
                                       session.visit.nvml().GetClockInfo, nvml::kClockSm, &mhz);
  if (!read) return tl::unexpected(read.error());
  return mhz;
}

DeviceResult<int> NvmlDevice::ReadSmClock() {
  const DeviceResult<Session> session = Begin();
  if (!session) return tl::unexpected(session.error());
  const DeviceResult<unsigned> mhz = ReadSmClock(*session);
  if (!mhz) return tl::unexpected(mhz.error());
  return static_cast<int>(*mhz);
}

DeviceResult<NvmlDevice::Clocks> NvmlDevice::ReadClocks(const Session& session) {
  const nvml::Functions& nvml = session.visit.nvml();
  const DeviceResult<unsigned> sm = ReadSmClock(session);
  if (!sm) return tl::unexpected(sm.error());
  unsigned memory = 0;
  DeviceResult<void> read = Call(session, NvmlUse::kRead, "read the memory clock",
                                 nvml.GetClockInfo, nvml::kClockMemory, &memory);
  if (!read && read.error().kind != DeviceErrorKind::kNotSupported) {
    return tl::unexpected(read.error());
  }
  unsigned long long reasons = 0;
  read = Call(session, NvmlUse::kRead, "read what limits the clocks",
              nvml.GetCurrentClocksEventReasons, &reasons);
  if (!read && read.error().kind != DeviceErrorKind::kNotSupported) {
    return tl::unexpected(read.error());
  }
  return Clocks{.sm_mhz = static_cast<int>(*sm),
                .memory_mhz = static_cast<int>(memory),
                .limits = LimitsOf(reasons)};
}

DeviceResult<double> NvmlDevice::ReadCounter(const Session& session) {
  unsigned long long millijoules = 0;
  const DeviceResult<void> read =
      Call(session, NvmlUse::kRead, "read the energy counter",
           session.visit.nvml().GetTotalEnergyConsumption, &millijoules);
  if (!read) return tl::unexpected(read.error());
  const std::lock_guard lock(mutex_);
  return counter_.Add(static_cast<double>(millijoules) / 1e3, session.visit.generation());
}

DeviceResult<double> NvmlDevice::ReadEnergy() {
  {
    const DeviceResult<Session> session = Begin();
    if (!session) return tl::unexpected(session.error());
    DeviceResult<double> energy = ReadCounter(*session);
    if (energy || energy.error().kind != DeviceErrorKind::kNotSupported) return energy;
  }
  return Device::ReadEnergy();
}

DeviceResult<double> NvmlDevice::EnergyOf(const Session& session, Telemetry& telemetry) {
  DeviceResult<double> energy = ReadCounter(session);
  if (energy || energy.error().kind != DeviceErrorKind::kNotSupported) return energy;
  telemetry.is_energy_integrated = true;
  const std::lock_guard lock(mutex_);
  integrator_.Add(telemetry.at, telemetry.power_w);
  return integrator_.energy_j();
}

DeviceResult<Telemetry> NvmlDevice::Read() {
  const DeviceResult<Session> session = Begin();
  if (!session) return tl::unexpected(session.error());
  const nvml::Functions& nvml = session->visit.nvml();
  Telemetry telemetry;
  telemetry.at = library_->Now();
  unsigned milliwatts = 0;
  DeviceResult<void> read =
      Call(*session, NvmlUse::kRead, "read the power", nvml.GetPowerUsage, &milliwatts);
  if (!read) return tl::unexpected(read.error());
  telemetry.power_w = milliwatts / 1e3;
  const DeviceResult<double> energy = EnergyOf(*session, telemetry);
  if (!energy) return tl::unexpected(energy.error());
  telemetry.energy_j = *energy;
  unsigned celsius = 0;
  read = Call(*session, NvmlUse::kRead, "read the temperature", nvml.GetTemperature,
              nvml::kTemperatureGpu, &celsius);
  if (!read && read.error().kind != DeviceErrorKind::kNotSupported) {
    return tl::unexpected(read.error());
  }
  telemetry.temperature_c = static_cast<int>(celsius);
  const DeviceResult<Clocks> clocks = ReadClocks(*session);
  if (!clocks) return tl::unexpected(clocks.error());
  telemetry.sm_clock_mhz = clocks->sm_mhz;
  telemetry.memory_clock_mhz = clocks->memory_mhz;
  telemetry.limits = clocks->limits;
  return telemetry;
}

DeviceResult<int> NvmlDevice::ReadPowerLimit(const Session& session) {
  unsigned milliwatts = 0;
  const DeviceResult<void> read = Call(session, NvmlUse::kRead, "read the power limit",
                                       session.visit.nvml().GetPowerManagementLimit, &milliwatts);
  if (!read) return tl::unexpected(read.error());
  return static_cast<int>(milliwatts);
}

DeviceResult<SettingReading> NvmlDevice::ReadSetting(Control control) {
  const DeviceResult<Session> session = Begin();
  if (!session) return tl::unexpected(session.error());
  if (control == Control::kPowerLimit) {
    const DeviceResult<int> limit = ReadPowerLimit(*session);
    if (!limit) return tl::unexpected(limit.error());
    SettingReading reading{.is_known = true, .setting = std::nullopt, .hint = {}};
    if (*limit != info_.default_power_limit_mw) reading.setting = Setting{*limit, *limit};
    return reading;
  }
  const DeviceResult<Clocks> clocks = ReadClocks(*session);
  if (!clocks) return tl::unexpected(clocks.error());
  const bool is_sm = control == Control::kSmClock;
  std::string hint =
      LockHint(NameOf(control), is_sm ? clocks->sm_mhz : clocks->memory_mhz, clocks->limits,
               is_sm ? info_.sm_clocks_mhz : info_.memory_clocks_mhz);
  // The driver's reason is not for a specific clock. So it holds for this clock only if this clock
  // is below its highest value, which LockHint checks.
  const bool is_certain = !hint.empty() && clocks->limits.Has(ClockLimit::kSetting);
  return SettingReading{.is_known = false,
                        .setting = std::nullopt,
                        .hint = std::move(hint),
                        .is_certain = is_certain};
}

// This check is necessary because NVML accepts clocks that are in no list, and rounds them.
DeviceResult<void> NvmlDevice::CheckSetting(Control control, const Setting& setting) const {
  if (control == Control::kPowerLimit) {
    if (setting.lower == setting.upper && setting.lower >= info_.least_power_limit_mw &&
        setting.lower <= info_.most_power_limit_mw) {
      return {};
    }
    return DeviceFail(DeviceErrorKind::kInvalid,
                      "{}: {} mW is not a power limit of this GPU ({} to {} mW)", info_.uuid,
                      setting.upper, info_.least_power_limit_mw, info_.most_power_limit_mw);
  }
  const std::vector<int>& clocks =
      control == Control::kSmClock ? info_.sm_clocks_mhz : info_.memory_clocks_mhz;
  if (clocks.empty()) {
    return DeviceFail(DeviceErrorKind::kNotSupported, "{}: its driver lists no {} that can be set",
                      info_.uuid, NameOf(control));
  }
  // The ends of a range need not be in the list. Administrators write round numbers.
  const bool is_range = setting.lower < setting.upper;
  for (const int mhz : {setting.lower, setting.upper}) {
    if (is_range ? mhz >= clocks.front() && mhz <= clocks.back()
                 : std::binary_search(clocks.begin(), clocks.end(), mhz)) {
      continue;
    }
    return DeviceFail(DeviceErrorKind::kInvalid,
                      "{}: {} MHz is not among the {}s of this GPU ({} from {} to {} MHz)",
                      info_.uuid, mhz, NameOf(control), clocks.size(), clocks.front(),
                      clocks.back());
  }
  if (setting.lower <= setting.upper) return {};
  return DeviceFail(DeviceErrorKind::kInvalid, "{}: the {}s {}-{} MHz are in the wrong order",
                    info_.uuid, NameOf(control), setting.lower, setting.upper);
}

DeviceResult<void> NvmlDevice::ApplyLock(const Session& session, Control control,
                                         const std::optional<Setting>& setting) {
  const nvml::Functions& nvml = session.visit.nvml();
  const bool is_sm = control == Control::kSmClock;
  if (!setting) {
    return Call(session, NvmlUse::kChange, fmt::format("unlock the {}", NameOf(control)),
                is_sm ? nvml.ResetGpuLockedClocks : nvml.ResetMemoryLockedClocks);
  }
  return Call(session, NvmlUse::kChange,
              fmt::format("lock the {} to {}", NameOf(control), Describe(control, setting)),
              is_sm ? nvml.SetGpuLockedClocks : nvml.SetMemoryLockedClocks,
              static_cast<unsigned>(setting->lower), static_cast<unsigned>(setting->upper));
}

DeviceResult<void> NvmlDevice::ApplyPowerLimit(const Session& session,
                                               const std::optional<Setting>& setting) {
  if (info_.default_power_limit_mw == 0) {
    return DeviceFail(DeviceErrorKind::kNotSupported, "{}: it has no power limit to set",
                      info_.uuid);
  }
  const int milliwatts = setting ? setting->upper : info_.default_power_limit_mw;
  return Call(session, NvmlUse::kChange, fmt::format("set the power limit to {} mW", milliwatts),
              session.visit.nvml().SetPowerManagementLimit, static_cast<unsigned>(milliwatts));
}

DeviceResult<void> NvmlDevice::Apply(Control control, const std::optional<Setting>& setting) {
  if (setting) {
    if (DeviceResult<void> checked = CheckSetting(control, *setting); !checked) return checked;
  }
  const DeviceResult<Session> session = Begin();
  if (!session) return tl::unexpected(session.error());
  return control == Control::kPowerLimit ? ApplyPowerLimit(*session, setting)
                                         : ApplyLock(*session, control, setting);
}

DeviceResult<Effect> NvmlDevice::ReadEffect(Control control,
                                            const std::optional<Setting>& setting) {
  const DeviceResult<Session> session = Begin();
  if (!session) return tl::unexpected(session.error());
  const DeviceResult<Clocks> clocks = ReadClocks(*session);
  if (!clocks) return tl::unexpected(clocks.error());
  Effect effect{
      .state = EffectState::kPending, .sm_clock_mhz = clocks->sm_mhz, .limits = clocks->limits};
  if (control == Control::kSmClock) {
    effect.state = ClockEffect(clocks->sm_mhz, clocks->limits, setting, info_.sm_clocks_mhz);
  } else if (control == Control::kMemoryClock) {
    effect.state =
        ClockEffect(clocks->memory_mhz, clocks->limits, setting, info_.memory_clocks_mhz);
  } else {
    const DeviceResult<int> limit = ReadPowerLimit(*session);
    if (!limit) return tl::unexpected(limit.error());
    const int wanted = setting ? setting->upper : info_.default_power_limit_mw;
    if (*limit == wanted) effect.state = EffectState::kInEffect;
  }
  return effect;
}

}  // namespace perseus::device
