// A GPU behind NVML.
//
// Limits of NVML, and their effect in this file:
//  - No call reads locked clocks. So ReadSetting of a clock is never known, and its hint says what
//    looks like a lock.
//  - The driver stores locked clocks, and a reload drops them. Read() cannot see a reload, but the
//    next error has the kind kGone.
//  - An idle GPU may run below its lock. So ReadEffect of a clock on an idle GPU is kPending.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/device/energy_account.h"
#include "perseus/runtime/device/nvml_library.h"
#include "perseus/runtime/device/open_devices.h"

namespace perseus::device {
namespace {

std::string_view Remedy(DeviceErrorKind kind, int code) {
  switch (kind) {
    case DeviceErrorKind::kPermission:
      return code == nvml::kOperatingSystem
                 ? "give this process access to the GPU's /dev/nvidia files: cgroup, container"
                 : "run the agent as root; in a container, with --cap-add SYS_ADMIN as well";
    case DeviceErrorKind::kNotSupported:
      return "this GPU, or the version of its driver, has no such call";
    case DeviceErrorKind::kGone:
      return code == nvml::kGpuIsLost || code == nvml::kResetRequired
                 ? "reset it with nvidia-smi --gpu-reset, or reboot; see dmesg for the Xid"
                 : "it is looked for again at the next call";
    case DeviceErrorKind::kFailed:
      return RemedyOf(code, "");
    case DeviceErrorKind::kInvalid:
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
  // "Hardware slowdown" alone does not say why the clock is low. With one of these two reasons,
  // "hardware slowdown" adds nothing.
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

// Returns a text if the clock looks as if a program had locked it. Otherwise returns an empty text.
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

class NvmlDevice final : public Device {
 public:
  // `info` comes from OpenNvmlDevices. `info.uuid` identifies the GPU. `handle` belongs to
  // `generation`.
  NvmlDevice(std::shared_ptr<NvmlLibrary> library, DeviceInfo info, nvml::Handle handle,
             std::uint64_t generation)
      : library_(std::move(library)),
        info_(std::move(info)),
        handle_(handle),
        handle_generation_(generation) {}

  const DeviceInfo& info() const override { return info_; }
  DeviceResult<Telemetry> Read() override {
    PERSEUS_ASSIGN_OR_RETURN(const Session session, Begin());
    const nvml::Functions& nvml = session.visit.nvml();
    Telemetry telemetry;
    telemetry.at = library_->Now();
    unsigned milliwatts = 0;
    PERSEUS_ASSIGN_OR_RETURN(const bool has_power,
                             IfSupported(Call(session, NvmlUse::kRead, "read the power",
                                              nvml.GetPowerUsage, &milliwatts)));
    if (has_power) telemetry.power_w = milliwatts / kMilliwattsPerWatt;
    PERSEUS_ASSIGN_OR_RETURN(EnergyAccount::Reading reading, ReadCounter(session));
    reading.power_w = telemetry.power_w;
    {
      const MutexLock lock(mutex_);
      energy_.Add(reading);
      energy_.Fill(telemetry);
    }
    unsigned celsius = 0;
    PERSEUS_ASSIGN_OR_RETURN(
        const bool has_temperature,
        IfSupported(Call(session, NvmlUse::kRead, "read the temperature", nvml.GetTemperature,
                         nvml::kTemperatureGpu, &celsius)));
    if (has_temperature) telemetry.temperature_c = static_cast<int>(celsius);
    PERSEUS_ASSIGN_OR_RETURN(const Clocks clocks, ReadClocks(session));
    telemetry.sm_clock_mhz = clocks.sm_mhz;
    telemetry.memory_clock_mhz = clocks.memory_mhz;
    telemetry.limits = clocks.limits;
    return telemetry;
  }

  DeviceResult<std::optional<double>> ReadEnergy() override {
    if (IsCounterUsed()) {
      PERSEUS_ASSIGN_OR_RETURN(const Session session, Begin());
      PERSEUS_ASSIGN_OR_RETURN(const EnergyAccount::Reading reading, ReadCounter(session));
      const MutexLock lock(mutex_);
      energy_.Add(reading);
      if (energy_.state() == CounterState::kUsed) return energy_.energy_j();
    }
    return Device::ReadEnergy();
  }

  DeviceResult<int> ReadSmClock() override {
    PERSEUS_ASSIGN_OR_RETURN(const Session session, Begin());
    PERSEUS_ASSIGN_OR_RETURN(const unsigned mhz, ReadSmClock(session));
    return static_cast<int>(mhz);
  }

  DeviceResult<std::string> DescribePrograms() override {
    PERSEUS_ASSIGN_OR_RETURN(const Session session, Begin());
    const auto list = session.visit.nvml().GetComputeRunningProcesses;
    // The array has twice the size, because some drivers use longer entries (nvml_api.h).
    unsigned count = 16;
    std::array<nvml::ProcessInfo, 32> processes{};
    const int code = list == nullptr ? static_cast<int>(nvml::kFunctionNotFound)
                                     : list(session.handle, &count, processes.data());
    if (code == nvml::kInsufficientSize) {
      return fmt::format("{} processes run on {}", count, info_.uuid);
    }
    if (code != nvml::kSuccess) {
      return Failure(session.visit, NvmlUse::kRead, "list the programs", code);
    }
    if (count == 0) return "";
    return count == 1 ? fmt::format("process {} runs on {}", processes[0].pid, info_.uuid)
                      : fmt::format("{} processes run on {}, process {} for example", count,
                                    info_.uuid, processes[0].pid);
  }

  DeviceResult<SettingReading> ReadSetting(Control control) override {
    PERSEUS_ASSIGN_OR_RETURN(const Session session, Begin());
    if (control == Control::kPowerLimit) {
      PERSEUS_ASSIGN_OR_RETURN(const int limit, ReadPowerLimit(session));
      SettingReading reading{.is_known = true, .setting = std::nullopt, .hint = {}};
      if (limit != info_.default_power_limit_mw) reading.setting = Setting{limit, limit};
      return reading;
    }
    PERSEUS_ASSIGN_OR_RETURN(const Clocks clocks, ReadClocks(session));
    const bool is_sm = control == Control::kSmClock;
    const std::optional<int> mhz = is_sm ? clocks.sm_mhz : clocks.memory_mhz;
    std::string hint = mhz ? LockHint(NameOf(control), *mhz, clocks.limits,
                                      is_sm ? info_.sm_clocks_mhz : info_.memory_clocks_mhz)
                           : "";
    // The driver's reason is not for a specific clock. So the reason applies to this clock only if
    // the clock is below its highest value. LockHint checks this condition.
    const bool is_certain = !hint.empty() && clocks.limits.Has(ClockLimit::kSetting);
    return SettingReading{.is_known = false,
                          .setting = std::nullopt,
                          .hint = std::move(hint),
                          .is_certain = is_certain};
  }

  DeviceResult<void> Apply(Control control, const std::optional<Setting>& setting) override {
    if (control == Control::kPowerLimit) {
      PERSEUS_ASSIGN_OR_RETURN(const int milliwatts, PowerLimitToSet(info_, setting));
      PERSEUS_ASSIGN_OR_RETURN(const Session session, Begin());
      return Call(session, NvmlUse::kChange,
                  fmt::format("set the power limit to {} mW", milliwatts),
                  session.visit.nvml().SetPowerManagementLimit, static_cast<unsigned>(milliwatts));
    }
    if (setting) PERSEUS_RETURN_IF_ERROR(CheckClocks(control, *setting));
    PERSEUS_ASSIGN_OR_RETURN(const Session session, Begin());
    return ApplyLock(session, control, setting);
  }

  DeviceResult<Effect> ReadEffect(Control control, const std::optional<Setting>& setting) override {
    PERSEUS_ASSIGN_OR_RETURN(const Session session, Begin());
    PERSEUS_ASSIGN_OR_RETURN(const Clocks clocks, ReadClocks(session));
    Effect effect{
        .state = EffectState::kPending, .sm_clock_mhz = clocks.sm_mhz, .limits = clocks.limits};
    if (control == Control::kSmClock) {
      effect.state = ClockEffect(clocks.sm_mhz, clocks.limits, setting, info_.sm_clocks_mhz);
    } else if (control == Control::kMemoryClock) {
      if (clocks.memory_mhz) {
        effect.state =
            ClockEffect(*clocks.memory_mhz, clocks.limits, setting, info_.memory_clocks_mhz);
      }
    } else {
      PERSEUS_ASSIGN_OR_RETURN(const int limit, ReadPowerLimit(session));
      const int wanted = setting ? setting->upper : info_.default_power_limit_mw;
      if (limit == wanted) effect.state = EffectState::kInEffect;
    }
    return effect;
  }

 private:
  // A visit to the driver, with the GPU's handle of the visit's generation.
  struct Session {
    NvmlLibrary::Visit visit;
    nvml::Handle handle;
  };
  struct Clocks {
    int sm_mhz = 0;
    std::optional<int> memory_mhz;
    ClockLimits limits;
  };
  DeviceResult<Session> Begin() {
    DeviceResult<NvmlLibrary::Visit> visit = library_->Enter();
    if (!visit) {
      const DeviceError& failed = visit.error();
      return tl::unexpected<DeviceError>({failed.kind, failed.error.In(info_.uuid)});
    }
    {
      const MutexLock lock(mutex_);
      if (handle_generation_ == visit->generation()) return Session{*std::move(visit), handle_};
    }
    nvml::Handle handle = nullptr;
    const int code = visit->nvml().GetHandleByUUID(info_.uuid.c_str(), &handle);
    // An "invalid argument" here means that the driver does not know the UUID.
    if (code != nvml::kSuccess) return Failure(*visit, NvmlUse::kRead, "find the GPU", code);
    const MutexLock lock(mutex_);
    handle_ = handle;
    handle_generation_ = visit->generation();
    return Session{*std::move(visit), handle};
  }

  DeviceResult<unsigned> ReadSmClock(const Session& session) {
    unsigned mhz = 0;
    PERSEUS_RETURN_IF_ERROR(Call(session, NvmlUse::kRead, "read the SM clock",
                                 session.visit.nvml().GetClockInfo, nvml::kClockSm, &mhz));
    return mhz;
  }

  DeviceResult<Clocks> ReadClocks(const Session& session) {
    const nvml::Functions& nvml = session.visit.nvml();
    PERSEUS_ASSIGN_OR_RETURN(const unsigned sm, ReadSmClock(session));
    unsigned memory = 0;
    PERSEUS_ASSIGN_OR_RETURN(const bool has_memory,
                             IfSupported(Call(session, NvmlUse::kRead, "read the memory clock",
                                              nvml.GetClockInfo, nvml::kClockMemory, &memory)));
    unsigned long long reasons = 0;
    PERSEUS_RETURN_IF_ERROR(IfSupported(Call(session, NvmlUse::kRead, "read what limits the clocks",
                                             nvml.GetCurrentClocksEventReasons, &reasons)));
    return Clocks{.sm_mhz = static_cast<int>(sm),
                  .memory_mhz = has_memory ? std::optional(static_cast<int>(memory)) : std::nullopt,
                  .limits = LimitsOf(reasons)};
  }

  bool IsCounterUsed() {
    const MutexLock lock(mutex_);
    return energy_.state() == CounterState::kUsed;
  }

  // Without the power.
  DeviceResult<EnergyAccount::Reading> ReadCounter(const Session& session) {
    unsigned long long millijoules = 0;
    EnergyAccount::Reading reading;
    reading.began = library_->Now();
    PERSEUS_ASSIGN_OR_RETURN(
        const bool has_counter,
        IfSupported(Call(session, NvmlUse::kRead, "read the energy counter",
                         session.visit.nvml().GetTotalEnergyConsumption, &millijoules)));
    reading.ended = library_->Now();
    if (has_counter) {
      reading.counter_j = static_cast<double>(millijoules) / kMillijoulesPerJoule;
    }
    return reading;
  }

  DeviceResult<int> ReadPowerLimit(const Session& session) {
    unsigned milliwatts = 0;
    PERSEUS_RETURN_IF_ERROR(Call(session, NvmlUse::kRead, "read the power limit",
                                 session.visit.nvml().GetPowerManagementLimit, &milliwatts));
    return static_cast<int>(milliwatts);
  }

  // This check is necessary because NVML accepts clocks that are in no list, and rounds them.
  DeviceResult<void> CheckClocks(Control control, const Setting& setting) const {
    const std::vector<int>& clocks =
        control == Control::kSmClock ? info_.sm_clocks_mhz : info_.memory_clocks_mhz;
    if (clocks.empty()) {
      return DeviceFail(DeviceErrorKind::kNotSupported,
                        "{}: its driver lists no {} that can be set", info_.uuid, NameOf(control));
    }
    // The ends of a range may be missing in the list, because administrators write round numbers.
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

  DeviceResult<void> ApplyLock(const Session& session, Control control,
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

  // Calls NVML. `what` completes "cannot ..." in messages. If the function is null, fails with
  // kNotSupported.
  template <typename... Parameters, typename... Arguments>
  DeviceResult<void> Call(const Session& session, NvmlUse use, std::string_view what,
                          int (*function)(nvml::Handle, Parameters...), Arguments... arguments) {
    const int code = function == nullptr ? static_cast<int>(nvml::kFunctionNotFound)
                                         : function(session.handle, arguments...);
    if (code == nvml::kSuccess) return {};
    return Failure(session.visit, use, what, code);
  }

  tl::unexpected<DeviceError> Failure(const NvmlLibrary::Visit& visit, NvmlUse use,
                                      std::string_view what, int code) {
    const DeviceErrorKind kind = KindOfNvmlCode(code, use);
    if (kind == DeviceErrorKind::kGone) {
      const bool is_gpu = code == nvml::kGpuIsLost || code == nvml::kResetRequired ||
                          code == nvml::kNotFound || code == nvml::kGpuNotFound;
      library_->ReportGone(visit.generation(),
                           is_gpu ? NvmlLibrary::Gone::kGpu : NvmlLibrary::Gone::kDriver);
    }
    auto failure =
        DeviceFail(kind, "{}: cannot {}: {}", info_.uuid, what, library_->Describe(code));
    failure.value().error.remedy = Remedy(kind, code);
    return failure;
  }

  const std::shared_ptr<NvmlLibrary> library_;
  const DeviceInfo info_;

  Mutex mutex_;  // Never held during a call of the driver.
  nvml::Handle handle_ PERSEUS_GUARDED_BY(mutex_);
  std::uint64_t handle_generation_ PERSEUS_GUARDED_BY(mutex_);
  EnergyAccount energy_ PERSEUS_GUARDED_BY(mutex_);
};

// Returns the text that `function` writes into a buffer, or an empty text if the function fails.
std::string Text(int (*function)(nvml::Handle, char*, unsigned), nvml::Handle handle) {
  char text[nvml::kLongestText + 1] = {};
  return function(handle, text, nvml::kLongestText) == nvml::kSuccess ? text : std::string();
}

// Returns a number, or nullopt if the function does not exist or fails.
std::optional<int> Number(int (*function)(nvml::Handle, unsigned*), nvml::Handle handle) {
  unsigned value = 0;
  if (function == nullptr || function(handle, &value) != nvml::kSuccess) return std::nullopt;
  return static_cast<int>(value);
}

// Returns a sorted list. The first query asks the driver for the length of the list.
template <typename Query>
std::vector<int> AscendingList(Query query) {
  unsigned count = 0;
  const int code = query(&count, nullptr);
  if ((code != nvml::kSuccess && code != nvml::kInsufficientSize) || count == 0) return {};
  std::vector<unsigned> clocks(count);
  if (query(&count, clocks.data()) != nvml::kSuccess) return {};
  clocks.resize(std::min<std::size_t>(count, clocks.size()));
  std::vector<int> ascending(clocks.begin(), clocks.end());
  std::sort(ascending.begin(), ascending.end());
  ascending.erase(std::unique(ascending.begin(), ascending.end()), ascending.end());
  return ascending;
}

void ReadClockLists(const nvml::Functions& nvml, nvml::Handle handle, DeviceInfo& info) {
  if (nvml.GetSupportedMemoryClocks == nullptr || nvml.GetSupportedGraphicsClocks == nullptr) {
    return;
  }
  info.memory_clocks_mhz = AscendingList([&](unsigned* count, unsigned* mhz) {
    return nvml.GetSupportedMemoryClocks(handle, count, mhz);
  });
  if (info.memory_clocks_mhz.empty()) return;
  // SM clocks are listed for each memory clock. Training runs at the highest memory clock.
  const auto memory_mhz = static_cast<unsigned>(info.memory_clocks_mhz.back());
  info.sm_clocks_mhz = AscendingList([&](unsigned* count, unsigned* mhz) {
    return nvml.GetSupportedGraphicsClocks(handle, memory_mhz, count, mhz);
  });
}

void ReadPowerLimits(const nvml::Functions& nvml, nvml::Handle handle, DeviceInfo& info) {
  unsigned least = 0;
  unsigned most = 0;
  const std::optional<int> usual = Number(nvml.GetPowerManagementDefaultLimit, handle);
  if (!usual || nvml.GetPowerManagementLimitConstraints == nullptr ||
      nvml.SetPowerManagementLimit == nullptr ||
      nvml.GetPowerManagementLimitConstraints(handle, &least, &most) != nvml::kSuccess) {
    return;
  }
  info.default_power_limit_mw = *usual;
  info.least_power_limit_mw = static_cast<int>(least);
  info.most_power_limit_mw = static_cast<int>(most);
}

// Returns the PCI bus id, or an empty text if it is unknown.
std::string PciBusId(const nvml::Functions& nvml, nvml::Handle handle) {
  nvml::PciInfo pci = {};
  if (nvml.GetPciInfo == nullptr || nvml.GetPciInfo(handle, &pci) != nvml::kSuccess) return {};
  pci.bus_id[sizeof pci.bus_id - 1] = '\0';
  return pci.bus_id;
}

// Reads only the information that a program needs for measuring.
DeviceInfo ReadInfoToMeasure(const nvml::Functions& nvml, nvml::Handle handle, std::string uuid) {
  DeviceInfo info;
  info.uuid = std::move(uuid);
  info.name = Text(nvml.GetName, handle);
  info.backend = "nvml";
  info.pci_bus_id = PciBusId(nvml, handle);
  ReadClockLists(nvml, handle, info);
  if (nvml.SetGpuLockedClocks == nullptr || nvml.ResetGpuLockedClocks == nullptr) {
    info.measure_only = "its driver cannot lock clocks (install version 450 or later)";
  } else if (info.sm_clocks_mhz.empty()) {
    info.measure_only =
        "its driver lists no clocks that can be set (it is a virtual GPU, or too old)";
  }
  return info;
}

DeviceInfo ReadInfo(const nvml::Functions& nvml, nvml::Handle handle, std::string uuid) {
  DeviceInfo info = ReadInfoToMeasure(nvml, handle, std::move(uuid));
  char version[nvml::kLongestText] = {};
  if (nvml.SystemGetDriverVersion != nullptr &&
      nvml.SystemGetDriverVersion(version, sizeof version) == nvml::kSuccess) {
    info.driver_version = version;
  }
  info.minor_number = Number(nvml.GetMinorNumber, handle);
  if (info.minor_number) info.device_file = fmt::format("/dev/nvidia{}", *info.minor_number);
  if (const std::optional<int> mode = Number(nvml.GetPersistenceMode, handle)) {
    info.is_persistent = *mode == static_cast<int>(nvml::kEnabled);
  }
  ReadPowerLimits(nvml, handle, info);
  return info;
}

bool IsInMigMode(const nvml::Functions& nvml, nvml::Handle handle) {
  unsigned now = 0;
  unsigned after_reset = 0;
  return nvml.GetMigMode != nullptr &&
         nvml.GetMigMode(handle, &now, &after_reset) == nvml::kSuccess && now == nvml::kEnabled;
}

// Refuses the GPU and each of its instances, because a user may name any of them.
void RefuseMig(const nvml::Functions& nvml, nvml::Handle gpu, const std::string& uuid,
               std::vector<RefusedDevice>& refused) {
  refused.push_back(
      {fmt::format("{} ({})", uuid, Text(nvml.GetName, gpu)),
       fmt::format(
           "it is in MIG mode: its instances share one clock, so setting it for one of them "
           "slows the others (turn it off: nvidia-smi -i {} -mig 0)",
           uuid),
       uuid, PciBusId(nvml, gpu)});
  const int most = Number(nvml.GetMaxMigDeviceCount, gpu).value_or(0);
  if (nvml.GetMigDeviceHandleByIndex == nullptr) return;
  for (unsigned i = 0; i < static_cast<unsigned>(most); ++i) {
    nvml::Handle instance = nullptr;
    // Some indices may be unused.
    if (nvml.GetMigDeviceHandleByIndex(gpu, i, &instance) != nvml::kSuccess) continue;
    const std::string name = Text(nvml.GetUUID, instance);
    refused.push_back({name,
                       fmt::format("it is a MIG instance of {}, without a clock of its own (use "
                                   "whole GPUs: nvidia-smi -i {} -mig 0)",
                                   uuid, uuid),
                       name,
                       {}});
  }
}

// A GPU that can be used.
struct UsableGpu {
  nvml::Handle handle = nullptr;
  std::string uuid;
  int index = 0;
};

// Adds the GPUs that cannot be used to `refused`. Fails (kSystem) if NVML cannot count its GPUs.
Result<std::vector<UsableGpu>> FindUsable(const NvmlLibrary& library, const nvml::Functions& nvml,
                                          std::vector<RefusedDevice>& refused) {
  unsigned count = 0;
  if (const int code = nvml.GetCount(&count); code != nvml::kSuccess) {
    return FailAs(ErrorKind::kSystem, "NVML cannot count the GPUs: {} ({})", library.Describe(code),
                  RemedyOf(code, "see whether nvidia-smi works"));
  }
  std::vector<UsableGpu> usable;
  for (unsigned i = 0; i < count; ++i) {
    nvml::Handle handle = nullptr;
    const int code = nvml.GetHandleByIndex(i, &handle);
    std::string uuid = code == nvml::kSuccess ? Text(nvml.GetUUID, handle) : std::string();
    if (uuid.empty()) {
      refused.push_back(
          {fmt::format("NVML's GPU {}", i),
           fmt::format(
               "{} (see dmesg; reset it with nvidia-smi --gpu-reset, or reboot)",
               code == nvml::kSuccess ? "it does not report its UUID" : library.Describe(code))});
    } else if (IsInMigMode(nvml, handle)) {
      RefuseMig(nvml, handle, uuid, refused);
    } else {
      usable.push_back({handle, std::move(uuid), static_cast<int>(i)});
    }
  }
  return usable;
}

// Finds the GPU without looking at other GPUs. Returns nullopt if NVML does not know the GPU, or if
// the GPU cannot be used. In this case the list of all GPUs has more information.
std::optional<UsableGpu> FindByUuid(const nvml::Functions& nvml, const std::string& uuid) {
  // NVML also finds instances of MIG, whose UUIDs begin with "MIG-".
  if (!uuid.starts_with("GPU-")) return std::nullopt;
  UsableGpu gpu;
  if (nvml.GetHandleByUUID(uuid.c_str(), &gpu.handle) != nvml::kSuccess) return std::nullopt;
  // The driver may accept a part of a UUID.
  gpu.uuid = Text(nvml.GetUUID, gpu.handle);
  if (!gpu.uuid.starts_with(uuid) || IsInMigMode(nvml, gpu.handle)) return std::nullopt;
  return gpu;
}

}  // namespace

Result<DeviceList> OpenNvmlDevices(std::string_view file, DeviceClock clock) {
  PERSEUS_ASSIGN_OR_RETURN(std::shared_ptr<NvmlLibrary> library,
                           NvmlLibrary::Open(file, std::move(clock)));
  PERSEUS_ASSIGN_OR_RETURN(const NvmlLibrary::Visit visit, library->Enter());
  DeviceList list;
  PERSEUS_ASSIGN_OR_RETURN(auto usable, FindUsable(*library, visit.nvml(), list.refused));
  for (UsableGpu& gpu : usable) {
    DeviceInfo info = ReadInfo(visit.nvml(), gpu.handle, std::move(gpu.uuid));
    info.index = gpu.index;
    list.devices.push_back(
        std::make_unique<NvmlDevice>(library, std::move(info), gpu.handle, visit.generation()));
  }
  std::sort(list.devices.begin(), list.devices.end(),
            [](const auto& a, const auto& b) { return a->info().uuid < b->info().uuid; });
  return list;
}

Result<DeviceList> OpenNvmlDevice(std::string_view file, const WantedDevice& wanted,
                                  DeviceClock clock) {
  PERSEUS_ASSIGN_OR_RETURN(std::shared_ptr<NvmlLibrary> library,
                           NvmlLibrary::Open(file, std::move(clock)));
  PERSEUS_ASSIGN_OR_RETURN(const NvmlLibrary::Visit visit, library->Enter());
  const nvml::Functions& nvml = visit.nvml();
  DeviceList list;
  std::optional<UsableGpu> gpu = FindByUuid(nvml, wanted.uuid);
  if (!gpu) {
    PERSEUS_ASSIGN_OR_RETURN(auto usable, FindUsable(*library, nvml, list.refused));
    if (usable.empty() && list.refused.empty()) return list;
    FoundDevices found;
    found.refused = list.refused;
    for (const UsableGpu& one : usable) {
      found.usable.push_back({one.uuid, PciBusId(nvml, one.handle)});
    }
    PERSEUS_ASSIGN_OR_RETURN(const std::size_t chosen, wanted.choose(found));
    gpu = std::move(usable[chosen]);
  }
  list.devices.push_back(std::make_unique<NvmlDevice>(
      library, ReadInfoToMeasure(nvml, gpu->handle, std::move(gpu->uuid)), gpu->handle,
      visit.generation()));
  return list;
}

}  // namespace perseus::device
