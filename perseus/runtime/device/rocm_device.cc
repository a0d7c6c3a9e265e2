// A GPU behind ROCm SMI.
//
// Two controls can be set: the SM clock and the power cap. Unlike NVML, the driver reports both
// settings. It does not report what limits a clock, nor whether the GPU is idle. So a setting
// counts as in effect if it is read back. The SM clock is set in one of two ways:
//   - A range, where the driver has overdrive (Radeon). It sets the performance level "manual".
//   - A highest clock, with performance determinism (AMD Instinct from MI200 on, which has no
//     overdrive). Some versions of the library cannot read the highest clock back. Then a clock
//     that is not above it counts as in effect.
// Unlocking sets the level "auto".
//
// An MI250X has two GPUs, its dies. The first die reports the power and the energy of both, and the
// second one reports 0 W and a counter that stands still. So 0 W is no reading, and the scope of
// the first die is kModule.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "perseus/base/mutex.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/device/energy_account.h"
#include "perseus/runtime/device/open_devices.h"
#include "perseus/runtime/device/rocm_api.h"

namespace perseus::device {
namespace {

constexpr std::uint32_t kSensor = 0;

DeviceErrorKind KindOf(rocm::Code code) {
  switch (code) {
    case rocm::kPermission:
      return DeviceErrorKind::kPermission;
    case rocm::kNotSupported:
    case rocm::kNotYetImplemented:
      return DeviceErrorKind::kNotSupported;
    case rocm::kInvalidArguments:
    case rocm::kOutOfBounds:
      return DeviceErrorKind::kInvalid;
    case rocm::kInitError:
    case rocm::kNotFound:
      return DeviceErrorKind::kGone;
    default:
      return DeviceErrorKind::kFailed;
  }
}

std::string_view Remedy(DeviceErrorKind kind) {
  switch (kind) {
    case DeviceErrorKind::kPermission:
      return "run the agent as root; in a container, with /sys writable";
    case DeviceErrorKind::kNotSupported:
      return "this GPU, or the version of its driver, has no such setting";
    case DeviceErrorKind::kGone:
      return "it is looked for again at the next call";
    case DeviceErrorKind::kInvalid:
    case DeviceErrorKind::kFailed:
      return "";
  }
  return "";
}

// The library accepts no range of a single clock. So a single clock is written as a range from its
// lower neighbor to the clock. The lowest clock is written as a range to its upper neighbor. A
// range of two neighbors that is read counts as a single clock, too.
rocm::ClockRange RangeOf(const Setting& setting, int least_mhz) {
  if (setting.lower != setting.upper) return {setting.lower, setting.upper};
  if (setting.lower == least_mhz) return {setting.lower, setting.lower + 1};
  return {setting.upper - 1, setting.upper};
}

Setting SettingOf(const rocm::OverdriveRanges& ranges) {
  const auto [lower, upper] = ranges.sm;
  if (upper - lower != 1) return {lower, upper};
  const int single = ranges.sm_limits && lower == ranges.sm_limits->lower_mhz ? lower : upper;
  return {single, single};
}

// ROCm SMI, shared by all its devices. Only one call runs at a time, because its functions read and
// write a few small kernel files, and their thread safety differs between releases.
struct RocmLibrary {
  RocmLibrary(rocm::Functions loaded, DeviceClock now)
      : functions(std::move(loaded)), clock(std::move(now)) {}
  RocmLibrary(const RocmLibrary&) = delete;
  RocmLibrary& operator=(const RocmLibrary&) = delete;
  ~RocmLibrary() {
    if (is_initialized) functions.ShutDown();
  }

  Mutex mutex;
  const rocm::Functions functions PERSEUS_GUARDED_BY(mutex);
  const DeviceClock clock;
  bool is_initialized PERSEUS_GUARDED_BY(mutex) = false;
  // A call failed with kGone. The next call restarts the library.
  bool is_gone PERSEUS_GUARDED_BY(mutex) = false;
  // The number of the initialization. A new number makes older indices invalid.
  std::uint64_t generation PERSEUS_GUARDED_BY(mutex) = 0;
};

// Returns "GPU-" and the unique id that the driver reports. If the driver reports none, uses the
// PCI id instead.
std::string RocmUuid(const rocm::Functions& functions, std::uint32_t gpu) {
  std::uint64_t id = 0;
  if (functions.GetUniqueId != nullptr && functions.GetUniqueId(gpu, &id) == rocm::kSuccess) {
    return fmt::format("GPU-{:016x}", id);
  }
  if (functions.GetPciId != nullptr && functions.GetPciId(gpu, &id) == rocm::kSuccess) {
    return fmt::format("GPU-pci-{:x}", id);
  }
  return {};
}

// How the SM clock is set.
enum class ClockControl { kNone, kRange, kHighest };

class RocmDevice final : public Device {
 public:
  RocmDevice(std::shared_ptr<RocmLibrary> library, DeviceInfo info, ClockControl clock_control,
             PowerScope scope)
      : library_(std::move(library)),
        info_(std::move(info)),
        clock_control_(clock_control),
        scope_(scope) {}

  const DeviceInfo& info() const override { return info_; }
  DeviceResult<Telemetry> Read() override {
    const MutexLock lock(library_->mutex);
    PERSEUS_RETURN_IF_ERROR(Begin());
    Telemetry telemetry;
    telemetry.at = library_->clock();
    telemetry.scope = scope_;
    PERSEUS_ASSIGN_OR_RETURN(telemetry.power_w, ReadPower());
    PERSEUS_RETURN_IF_ERROR(ReadEnergyOf(telemetry));
    PERSEUS_ASSIGN_OR_RETURN(telemetry.temperature_c, ReadTemperature());
    PERSEUS_ASSIGN_OR_RETURN(telemetry.sm_clock_mhz, ReadClock(rocm::kClockSystem));
    PERSEUS_ASSIGN_OR_RETURN(telemetry.memory_clock_mhz, ReadClock(rocm::kClockMemory));
    return telemetry;
  }

  DeviceResult<SettingReading> ReadSetting(Control control) override {
    const MutexLock lock(library_->mutex);
    PERSEUS_RETURN_IF_ERROR(Begin());
    switch (control) {
      case Control::kSmClock:
        return ReadClockSetting();
      case Control::kPowerLimit:
        return ReadPowerCap();
      case Control::kMemoryClock:
        break;
    }
    return SettingReading{};
  }

  DeviceResult<void> Apply(Control control, const std::optional<Setting>& setting) override {
    const MutexLock lock(library_->mutex);
    PERSEUS_RETURN_IF_ERROR(Begin());
    switch (control) {
      case Control::kSmClock:
        return ApplyClock(setting);
      case Control::kPowerLimit:
        return ApplyPowerCap(setting);
      case Control::kMemoryClock:
        break;
    }
    return DeviceFail(DeviceErrorKind::kNotSupported,
                      "{}: cannot set the memory clock (with ROCm SMI, Perseus sets SM clocks and "
                      "power limits)",
                      info_.uuid);
  }

  DeviceResult<Effect> ReadEffect(Control control, const std::optional<Setting>& setting) override {
    PERSEUS_ASSIGN_OR_RETURN(const SettingReading reading, ReadSetting(control));
    const MutexLock lock(library_->mutex);
    PERSEUS_RETURN_IF_ERROR(Begin());
    PERSEUS_ASSIGN_OR_RETURN(const auto clock, ReadClock(rocm::kClockSystem));
    const bool is_unread = clock_control_ == ClockControl::kHighest && !reading.is_known;
    const bool is_so = is_unread && control == Control::kSmClock
                           ? setting && clock && *clock <= setting->upper
                           : reading.is_known && reading.setting == setting;
    return Effect{.state = is_so ? EffectState::kInEffect : EffectState::kPending,
                  .sm_clock_mhz = clock,
                  .limits = {}};
  }

 private:
  // Restarts the library if it is gone, and finds the GPU again after a restart.
  DeviceResult<void> Begin() PERSEUS_REQUIRES(library_->mutex) {
    if (library_->is_gone) PERSEUS_RETURN_IF_ERROR(Restart());
    if (gpu_generation_ == library_->generation) return {};
    PERSEUS_ASSIGN_OR_RETURN(gpu_, FindGpu());
    gpu_generation_ = library_->generation;
    return {};
  }

  DeviceResult<void> Restart() PERSEUS_REQUIRES(library_->mutex) {
    const rocm::Functions& rocm = library_->functions;
    if (std::exchange(library_->is_initialized, false)) rocm.ShutDown();
    if (const rocm::Code code = rocm.Init(0); code != rocm::kSuccess) {
      return Failure("start ROCm SMI", code);
    }
    library_->is_initialized = true;
    library_->is_gone = false;
    ++library_->generation;
    return {};
  }

  DeviceResult<std::uint32_t> FindGpu() PERSEUS_REQUIRES(library_->mutex) {
    const rocm::Functions& rocm = library_->functions;
    std::uint32_t count = 0;
    if (const rocm::Code code = rocm.CountDevices(&count); code != rocm::kSuccess) {
      return Failure("count the GPUs", code);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      if (RocmUuid(rocm, i) == info_.uuid) return i;
    }
    return Failure("find the GPU", rocm::kNotFound);
  }

  template <typename... Parameters, typename... Arguments>
  DeviceResult<void> Call(std::string_view what,
                          rocm::Code (*function)(std::uint32_t, Parameters...),
                          Arguments... arguments) PERSEUS_REQUIRES(library_->mutex) {
    const rocm::Code code =
        function == nullptr ? rocm::kNotSupported : function(gpu_, arguments...);
    if (code == rocm::kSuccess) return {};
    return Failure(what, code);
  }

  tl::unexpected<DeviceError> Failure(std::string_view what, rocm::Code code)
      PERSEUS_REQUIRES(library_->mutex) {
    const DeviceErrorKind kind = KindOf(code);
    if (kind == DeviceErrorKind::kGone) library_->is_gone = true;
    const char* text = nullptr;
    const auto describe = library_->functions.StatusString;
    if (describe == nullptr || describe(code, &text) != rocm::kSuccess || text == nullptr)
      text = "";
    auto failure = DeviceFail(kind, "{}: cannot {}: {}, ROCm SMI error {}", info_.uuid, what, text,
                              static_cast<std::uint32_t>(code));
    failure.value().error.remedy = Remedy(kind);
    return failure;
  }

  DeviceResult<std::optional<double>> ReadPower() PERSEUS_REQUIRES(library_->mutex) {
    std::uint64_t microwatts = 0;
    PERSEUS_ASSIGN_OR_RETURN(bool has_power,
                             IfSupported(Call("read the power", library_->functions.GetAveragePower,
                                              kSensor, &microwatts)));
    if (!has_power) {
      // Newer GPUs have only the momentary power.
      int kind = 0;
      PERSEUS_ASSIGN_OR_RETURN(
          has_power,
          IfSupported(Call("read the power", library_->functions.GetPower, &microwatts, &kind)));
    }
    if (!has_power || microwatts == 0) return std::nullopt;
    return static_cast<double>(microwatts) / kMicrowattsPerWatt;
  }

  DeviceResult<void> ReadEnergyOf(Telemetry& telemetry) PERSEUS_REQUIRES(library_->mutex) {
    std::uint64_t count = 0;
    std::uint64_t timestamp = 0;
    float microjoules_each = 0;
    EnergyAccount::Reading reading;
    reading.power_w = telemetry.power_w;
    reading.began = library_->clock();
    PERSEUS_ASSIGN_OR_RETURN(
        const bool has_counter,
        IfSupported(Call("read the energy counter", library_->functions.GetEnergyCount, &count,
                         &microjoules_each, &timestamp)));
    reading.ended = library_->clock();
    if (has_counter) {
      reading.counter_j =
          static_cast<double>(count) * static_cast<double>(microjoules_each) / kMicrojoulesPerJoule;
    }
    energy_.Add(reading);
    energy_.Fill(telemetry);
    return {};
  }

  DeviceResult<std::optional<int>> ReadClock(int clock) PERSEUS_REQUIRES(library_->mutex) {
    rocm::StructBuffer bytes = {};
    PERSEUS_RETURN_IF_ERROR(
        IfSupported(Call("read a clock", library_->functions.GetFrequencies, clock, &bytes)));
    const std::optional<rocm::Frequencies> frequencies = rocm::ParseFrequencies(bytes);
    if (!frequencies || !frequencies->current) return std::nullopt;
    return frequencies->mhz[*frequencies->current];
  }

  DeviceResult<std::optional<int>> ReadTemperature() PERSEUS_REQUIRES(library_->mutex) {
    // Other tools show the edge temperature. Some GPUs report only the junction temperature.
    for (const std::uint32_t sensor : {rocm::kEdge, rocm::kJunction}) {
      std::int64_t millicelsius = 0;
      PERSEUS_ASSIGN_OR_RETURN(
          const bool has_sensor,
          IfSupported(Call("read the temperature", library_->functions.GetTemperature, sensor,
                           rocm::kTemperatureNow, &millicelsius)));
      if (has_sensor) return static_cast<int>(millicelsius / 1000);
    }
    return std::nullopt;
  }

  DeviceResult<SettingReading> ReadClockSetting() PERSEUS_REQUIRES(library_->mutex) {
    const rocm::Functions& rocm = library_->functions;
    int level = rocm::kLevelAuto;
    PERSEUS_ASSIGN_OR_RETURN(const bool has_levels, IfSupported(Call("read the performance level",
                                                                     rocm.GetLevel, &level)));
    SettingReading reading;
    if (!has_levels) return reading;
    if (level == rocm::kLevelAuto) {
      reading.is_known = true;
      return reading;
    }
    rocm::StructBuffer bytes = {};
    PERSEUS_RETURN_IF_ERROR(IfSupported(Call("read the clock range", rocm.GetOverdrive, &bytes)));
    const std::optional<rocm::OverdriveRanges> ranges = rocm::ParseOverdrive(bytes);
    reading.is_known = ranges && (level == rocm::kLevelManual || level == rocm::kLevelDeterminism);
    if (!reading.is_known) {
      reading.hint = fmt::format("the performance level is {}, not automatic (0)", level);
      reading.is_certain = true;
    } else if (level == rocm::kLevelManual) {
      reading.setting = SettingOf(*ranges);
    } else {
      reading.setting = Setting{ranges->sm.upper_mhz, ranges->sm.upper_mhz};
    }
    return reading;
  }

  DeviceResult<SettingReading> ReadPowerCap() PERSEUS_REQUIRES(library_->mutex) {
    std::uint64_t microwatts = 0;
    PERSEUS_RETURN_IF_ERROR(
        Call("read the power limit", library_->functions.GetPowerCap, kSensor, &microwatts));
    const int milliwatts = static_cast<int>(microwatts / kMicrowattsPerMilliwatt);
    SettingReading reading{.is_known = true, .setting = std::nullopt, .hint = {}};
    if (milliwatts != info_.default_power_limit_mw)
      reading.setting = Setting{milliwatts, milliwatts};
    return reading;
  }

  DeviceResult<void> ApplyClock(const std::optional<Setting>& setting)
      PERSEUS_REQUIRES(library_->mutex) {
    const rocm::Functions& rocm = library_->functions;
    if (!info_.measure_only.empty()) {
      return DeviceFail(DeviceErrorKind::kNotSupported, "{}: cannot set its clocks: {}", info_.uuid,
                        info_.measure_only);
    }
    if (!setting) return Call("unlock the SM clock", rocm.SetLevel, rocm::kLevelAuto);
    const std::vector<int>& clocks = info_.sm_clocks_mhz;
    // The list has our own steps. The driver also accepts clocks between these steps, and
    // administrators use such clocks.
    if (setting->lower < clocks.front() || setting->upper > clocks.back() ||
        setting->lower > setting->upper) {
      return DeviceFail(DeviceErrorKind::kInvalid,
                        "{}: {} is not an SM clock of this GPU ({} from {} to {} MHz)", info_.uuid,
                        Describe(Control::kSmClock, setting), clocks.size(), clocks.front(),
                        clocks.back());
    }
    const std::string what =
        fmt::format("lock the SM clock to {}", Describe(Control::kSmClock, setting));
    if (clock_control_ == ClockControl::kHighest) {
      if (setting->lower != setting->upper) {
        return DeviceFail(DeviceErrorKind::kInvalid,
                          "{}: cannot {}: performance determinism has no lowest clock", info_.uuid,
                          what);
      }
      return Call(what, rocm.SetHighestClock, static_cast<std::uint64_t>(setting->upper));
    }
    const rocm::ClockRange range = RangeOf(*setting, clocks.front());
    return Call(what, rocm.SetClockRange, static_cast<std::uint64_t>(range.lower_mhz),
                static_cast<std::uint64_t>(range.upper_mhz), rocm::kClockSystem);
  }

  DeviceResult<void> ApplyPowerCap(const std::optional<Setting>& setting)
      PERSEUS_REQUIRES(library_->mutex) {
    PERSEUS_ASSIGN_OR_RETURN(const int milliwatts, PowerLimitToSet(info_, setting));
    return Call(fmt::format("set the power limit to {} mW", milliwatts),
                library_->functions.SetPowerCap, kSensor,
                static_cast<std::uint64_t>(milliwatts) * kMicrowattsPerMilliwatt);
  }

  const std::shared_ptr<RocmLibrary> library_;
  const DeviceInfo info_;
  const ClockControl clock_control_;
  const PowerScope scope_;
  std::uint32_t gpu_ PERSEUS_GUARDED_BY(library_->mutex) = 0;
  std::uint64_t gpu_generation_ PERSEUS_GUARDED_BY(library_->mutex) = 0;
  EnergyAccount energy_ PERSEUS_GUARDED_BY(library_->mutex);
};

// The driver accepts every whole MHz. A planner needs a shorter list.
constexpr int kClockStepMhz = 50;

// Returns an id such as "0000:c1:00.0", from rsmi_dev_pci_id_get.
std::string BusId(const rocm::Functions& rocm, std::uint32_t gpu) {
  std::uint64_t id = 0;
  if (rocm.GetPciId == nullptr || rocm.GetPciId(gpu, &id) != rocm::kSuccess) return {};
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", id >> 32, id >> 8 & 0xff, id >> 3 & 0x1f,
                     id & 0x7);
}

// Returns a path such as "/dev/dri/renderD128". Empty if the kernel names no render node.
std::filesystem::path RenderNode(const std::string& bus_id) {
  std::error_code error;
  const std::filesystem::path nodes = "/sys/bus/pci/devices/" + bus_id + "/drm";
  for (std::filesystem::directory_iterator node(nodes, error);
       !error && node != std::filesystem::directory_iterator(); node.increment(error)) {
    const std::string name = node->path().filename();
    if (name.starts_with("renderD")) return "/dev/dri/" + name;
  }
  return {};
}

// Whether this is an AMD Instinct, which has performance determinism instead of overdrive.
bool IsInstinct(const std::string& name) {
  return name.find("Instinct") != std::string::npos || name.find("INSTINCT") != std::string::npos;
}

// Returns the clocks that the driver names for this GPU.
std::optional<rocm::ClockRange> ListedClocks(const rocm::Functions& rocm, std::uint32_t gpu) {
  rocm::StructBuffer bytes = {};
  if (rocm.GetFrequencies == nullptr ||
      rocm.GetFrequencies(gpu, rocm::kClockSystem, &bytes) != rocm::kSuccess) {
    return std::nullopt;
  }
  const auto listed = rocm::ParseFrequencies(bytes);
  if (!listed) return std::nullopt;
  const auto [least, most] = std::minmax_element(listed->mhz.begin(), listed->mhz.end());
  if (*least >= *most) return std::nullopt;
  return rocm::ClockRange{*least, *most};
}

// Finds how the SM clock can be set, and fills the list of clocks, or the reason why no clock can
// be set.
ClockControl FindClocks(const rocm::Functions& rocm, std::uint32_t gpu, DeviceInfo& info) {
  if (rocm.SetLevel == nullptr || rocm.GetLevel == nullptr) {
    info.measure_only =
        "the installed ROCm SMI cannot set a range of clocks (install another release)";
    return ClockControl::kNone;
  }
  rocm::StructBuffer bytes = {};
  std::optional<rocm::ClockRange> range;
  ClockControl control = ClockControl::kRange;
  if (rocm.GetOverdrive != nullptr && rocm.SetClockRange != nullptr &&
      rocm.GetOverdrive(gpu, &bytes) == rocm::kSuccess) {
    const auto ranges = rocm::ParseOverdrive(bytes);
    if (ranges) range = ranges->sm_limits;
  }
  if (!range && IsInstinct(info.name) && rocm.SetHighestClock != nullptr) {
    control = ClockControl::kHighest;
    range = ListedClocks(rocm, gpu);
  }
  if (!range) {
    info.measure_only =
        IsInstinct(info.name)
            ? "its driver lists no clocks for performance determinism (update amdgpu and ROCm SMI; "
              "an MI100 and a virtual machine do not have it)"
            : "its driver has performance levels only, and no range of clocks (if amdgpu has "
              "overdrive, boot with amdgpu.ppfeaturemask=0xffffffff)";
    return ClockControl::kNone;
  }
  for (int mhz = range->upper_mhz; mhz > range->lower_mhz; mhz -= kClockStepMhz) {
    info.sm_clocks_mhz.push_back(mhz);
  }
  info.sm_clocks_mhz.push_back(range->lower_mhz);
  std::reverse(info.sm_clocks_mhz.begin(), info.sm_clocks_mhz.end());
  return control;
}

void ReadPowerLimits(const rocm::Functions& rocm, std::uint32_t gpu, DeviceInfo& info) {
  std::uint64_t usual = 0;
  std::uint64_t most = 0;
  std::uint64_t least = 0;
  if (rocm.GetDefaultPowerCap == nullptr || rocm.GetPowerCapRange == nullptr ||
      rocm.GetPowerCap == nullptr || rocm.SetPowerCap == nullptr ||
      rocm.GetDefaultPowerCap(gpu, &usual) != rocm::kSuccess ||
      rocm.GetPowerCapRange(gpu, 0, &most, &least) != rocm::kSuccess) {
    return;
  }
  info.default_power_limit_mw = static_cast<int>(usual / kMicrowattsPerMilliwatt);
  info.least_power_limit_mw = static_cast<int>(least / kMicrowattsPerMilliwatt);
  info.most_power_limit_mw = static_cast<int>(most / kMicrowattsPerMilliwatt);
}

// Returns an empty text if the driver names no model.
std::string NameOfGpu(const rocm::Functions& rocm, std::uint32_t gpu) {
  char name[256] = {};
  return rocm.GetName != nullptr && rocm.GetName(gpu, name, sizeof name - 1) == rocm::kSuccess
             ? name
             : "";
}

DeviceInfo ReadInfo(const rocm::Functions& rocm, std::uint32_t gpu, std::string uuid) {
  DeviceInfo info;
  info.uuid = std::move(uuid);
  info.name = NameOfGpu(rocm, gpu);
  info.backend = "rocm";
  info.pci_bus_id = BusId(rocm, gpu);
  if (!info.pci_bus_id.empty()) info.device_file = RenderNode(info.pci_bus_id);
  ReadPowerLimits(rocm, gpu, info);
  return info;
}

// Returns the power in microwatts, as the driver reports it.
std::optional<std::uint64_t> PowerOf(const rocm::Functions& rocm, std::uint32_t gpu) {
  std::uint64_t microwatts = 0;
  int kind = 0;
  const bool has_average = rocm.GetAveragePower != nullptr &&
                           rocm.GetAveragePower(gpu, kSensor, &microwatts) == rocm::kSuccess;
  const bool has_power = has_average || (rocm.GetPower != nullptr &&
                                         rocm.GetPower(gpu, &microwatts, &kind) == rocm::kSuccess);
  return has_power ? std::optional(microwatts) : std::nullopt;
}

// Whether the GPU is the first die of a module whose second die is the next GPU.
bool IsFirstDie(const rocm::Functions& rocm, std::uint32_t gpu, std::uint32_t count) {
  return gpu + 1 < count && NameOfGpu(rocm, gpu) == NameOfGpu(rocm, gpu + 1) &&
         PowerOf(rocm, gpu) > 0U && PowerOf(rocm, gpu + 1) == 0U;
}

}  // namespace

Result<DeviceList> OpenRocmDevices(std::string_view file, DeviceClock clock) {
  PERSEUS_ASSIGN_OR_RETURN(rocm::Functions loaded, rocm::Load(file));
  const auto library = std::make_shared<RocmLibrary>(std::move(loaded), std::move(clock));
  const MutexLock lock(library->mutex);
  const rocm::Functions& rocm = library->functions;
  std::uint32_t count = 0;
  rocm::Code code = rocm.Init(0);
  if (code == rocm::kSuccess) {
    library->is_initialized = true;
    library->generation = 1;
    code = rocm.CountDevices(&count);
  }
  if (code != rocm::kSuccess) {
    return FailAs(ErrorKind::kSystem,
                  "cannot start ROCm SMI: error {} (check whether rocm-smi works; load the kernel "
                  "module: modprobe amdgpu)",
                  static_cast<std::uint32_t>(code));
  }
  DeviceList list;
  std::vector<std::string> uuids;
  for (std::uint32_t i = 0; i < count; ++i) uuids.push_back(RocmUuid(rocm, i));
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::string& uuid = uuids[i];
    const auto same = std::count(uuids.begin(), uuids.end(), uuid);
    if (uuid.empty()) {
      list.refused.push_back({fmt::format("ROCm SMI's GPU {}", i),
                              "it reports neither a unique id nor a PCI id (update the amdgpu "
                              "driver)"});
    } else if (same > 1) {
      list.refused.push_back(
          {fmt::format("ROCm SMI's GPU {}", i),
           fmt::format(
               "it is one of {} partitions of {}, which share one clock (make one partition: "
               "rocm-smi --setcomputepartition SPX)",
               same, uuid),
           uuid, BusId(rocm, i)});
    } else {
      DeviceInfo info = ReadInfo(rocm, i, uuid);
      info.index = static_cast<int>(i);
      const ClockControl control = FindClocks(rocm, i, info);
      const PowerScope scope = IsFirstDie(rocm, i, count) ? PowerScope::kModule : PowerScope::kGpu;
      list.devices.push_back(
          std::make_unique<RocmDevice>(library, std::move(info), control, scope));
    }
  }
  std::sort(list.devices.begin(), list.devices.end(),
            [](const auto& a, const auto& b) { return a->info().uuid < b->info().uuid; });
  return list;
}

}  // namespace perseus::device
