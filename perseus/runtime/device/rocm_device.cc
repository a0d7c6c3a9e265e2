#include "perseus/runtime/device/rocm_device.h"

#include <algorithm>
#include <utility>

namespace perseus::device {
namespace {

constexpr std::uint32_t kSensor = 0;
constexpr std::uint64_t kMicrowattsPerMilliwatt = 1000;

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
      return " (run the agent as root; in a container, with /sys writable)";
    case DeviceErrorKind::kNotSupported:
      return " (this GPU, or the version of its driver, has no such setting)";
    case DeviceErrorKind::kGone:
      return " (it is looked for again at the next call)";
    case DeviceErrorKind::kInvalid:
    case DeviceErrorKind::kFailed:
      return "";
  }
  return "";
}

// The library accepts no range of a single clock. So a single clock is written as a range with its
// lower neighbor, or with its upper neighbor at the lowest clock. It is read back in the same way.
rocm::ClockRange RangeOf(const Setting& setting, int least_mhz) {
  if (setting.lower != setting.upper) return {setting.lower, setting.upper};
  if (setting.lower == least_mhz) return {setting.lower, setting.lower + 1};
  return {setting.upper - 1, setting.upper};
}

Setting SettingOf(const rocm::OverdriveRanges& ranges) {
  const auto [lower, upper] = ranges.sm;
  if (upper - lower != 1) return {lower, upper};
  const int single = lower == ranges.sm_limits.lower_mhz ? lower : upper;
  return {single, single};
}

bool IsUnsupported(const DeviceError& error) {
  return error.kind == DeviceErrorKind::kNotSupported;
}

}  // namespace

RocmLibrary::~RocmLibrary() {
  if (is_initialized) api.functions.ShutDown();
}

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

RocmDevice::RocmDevice(std::shared_ptr<RocmLibrary> library, DeviceInfo info)
    : library_(std::move(library)), info_(std::move(info)) {}

tl::unexpected<DeviceError> RocmDevice::Failure(std::string_view what, rocm::Code code) {
  const DeviceErrorKind kind = KindOf(code);
  if (kind == DeviceErrorKind::kGone) library_->is_gone = true;
  const char* text = nullptr;
  const auto describe = library_->api.functions.StatusString;
  if (describe == nullptr || describe(code, &text) != rocm::kSuccess || text == nullptr) text = "";
  return DeviceFail(kind, "{}: cannot {}: {} (ROCm SMI error {}){}", info_.uuid, what, text,
                    static_cast<std::uint32_t>(code), Remedy(kind));
}

template <typename... Parameters, typename... Arguments>
DeviceResult<void> RocmDevice::Call(const Session& session, std::string_view what,
                                    rocm::Code (*function)(std::uint32_t, Parameters...),
                                    Arguments... arguments) {
  const rocm::Code code =
      function == nullptr ? rocm::kNotSupported : function(session.gpu, arguments...);
  if (code == rocm::kSuccess) return {};
  return Failure(what, code);
}

DeviceResult<void> RocmDevice::Restart() {
  const rocm::Functions& rocm = library_->api.functions;
  if (std::exchange(library_->is_initialized, false)) rocm.ShutDown();
  if (const rocm::Code code = rocm.Init(0); code != rocm::kSuccess) {
    return Failure("start ROCm SMI", code);
  }
  library_->is_initialized = true;
  library_->is_gone = false;
  ++library_->generation;
  return {};
}

DeviceResult<std::uint32_t> RocmDevice::FindGpu() {
  const rocm::Functions& rocm = library_->api.functions;
  std::uint32_t count = 0;
  if (const rocm::Code code = rocm.CountDevices(&count); code != rocm::kSuccess) {
    return Failure("count the GPUs", code);
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    if (RocmUuid(rocm, i) == info_.uuid) return i;
  }
  return Failure("find the GPU", rocm::kNotFound);
}

DeviceResult<RocmDevice::Session> RocmDevice::Begin() {
  Session session{.lock = std::unique_lock(library_->mutex)};
  if (library_->is_gone) {
    if (const DeviceResult<void> restarted = Restart(); !restarted) {
      return tl::unexpected(restarted.error());
    }
  }
  if (gpu_generation_ != library_->generation) {
    const DeviceResult<std::uint32_t> found = FindGpu();
    if (!found) return tl::unexpected(found.error());
    gpu_ = *found;
    gpu_generation_ = library_->generation;
  }
  session.gpu = gpu_;
  return session;
}

DeviceResult<double> RocmDevice::ReadPower(const Session& session) {
  std::uint64_t microwatts = 0;
  const DeviceResult<void> average = Call(
      session, "read the power", library_->api.functions.GetAveragePower, kSensor, &microwatts);
  if (!average) {
    // Newer GPUs have only the momentary power.
    int kind = 0;
    if (!IsUnsupported(average.error())) return tl::unexpected(average.error());
    const DeviceResult<void> momentary =
        Call(session, "read the power", library_->api.functions.GetPower, &microwatts, &kind);
    if (!momentary) return tl::unexpected(momentary.error());
  }
  return static_cast<double>(microwatts) / 1e6;
}

DeviceResult<double> RocmDevice::ReadEnergyCounter(const Session& session, Telemetry& telemetry) {
  std::uint64_t count = 0;
  std::uint64_t timestamp = 0;
  float microjoules_each = 0;
  const DeviceResult<void> read =
      Call(session, "read the energy counter", library_->api.functions.GetEnergyCount, &count,
           &microjoules_each, &timestamp);
  if (read) {
    const double energy_j =
        static_cast<double>(count) * static_cast<double>(microjoules_each) / 1e6;
    return counter_.Add(energy_j, library_->generation);
  }
  if (!IsUnsupported(read.error())) return tl::unexpected(read.error());
  telemetry.is_energy_integrated = true;
  integrator_.Add(telemetry.at, telemetry.power_w);
  return integrator_.energy_j();
}

DeviceResult<int> RocmDevice::ReadClock(const Session& session, int clock) {
  rocm::StructBuffer bytes = {};
  const DeviceResult<void> read =
      Call(session, "read a clock", library_->api.functions.GetFrequencies, clock, &bytes);
  if (!read) {
    if (IsUnsupported(read.error())) return 0;
    return tl::unexpected(read.error());
  }
  const std::optional<rocm::Frequencies> frequencies = rocm::ParseFrequencies(bytes);
  return frequencies && frequencies->current ? frequencies->mhz[*frequencies->current] : 0;
}

DeviceResult<int> RocmDevice::ReadTemperature(const Session& session) {
  // Other tools show the edge temperature. Some GPUs have only that of the junction.
  for (const std::uint32_t sensor : {rocm::kEdge, rocm::kJunction}) {
    std::int64_t millicelsius = 0;
    const DeviceResult<void> read =
        Call(session, "read the temperature", library_->api.functions.GetTemperature, sensor,
             rocm::kTemperatureNow, &millicelsius);
    if (read) return static_cast<int>(millicelsius / 1000);
    if (!IsUnsupported(read.error())) return tl::unexpected(read.error());
  }
  return 0;
}

DeviceResult<Telemetry> RocmDevice::Read() {
  const DeviceResult<Session> session = Begin();
  if (!session) return tl::unexpected(session.error());
  Telemetry telemetry;
  telemetry.at = library_->clock();
  const DeviceResult<double> power = ReadPower(*session);
  if (!power) return tl::unexpected(power.error());
  telemetry.power_w = *power;
  const DeviceResult<double> energy = ReadEnergyCounter(*session, telemetry);
  if (!energy) return tl::unexpected(energy.error());
  telemetry.energy_j = *energy;
  const DeviceResult<int> temperature = ReadTemperature(*session);
  if (!temperature) return tl::unexpected(temperature.error());
  telemetry.temperature_c = *temperature;
  const DeviceResult<int> sm = ReadClock(*session, rocm::kClockSystem);
  if (!sm) return tl::unexpected(sm.error());
  telemetry.sm_clock_mhz = *sm;
  const DeviceResult<int> memory = ReadClock(*session, rocm::kClockMemory);
  if (!memory) return tl::unexpected(memory.error());
  telemetry.memory_clock_mhz = *memory;
  return telemetry;
}

DeviceResult<SettingReading> RocmDevice::ReadClockSetting(const Session& session) {
  const rocm::Functions& rocm = library_->api.functions;
  int level = rocm::kLevelAuto;
  DeviceResult<void> read = Call(session, "read the performance level", rocm.GetLevel, &level);
  if (!read) {
    if (IsUnsupported(read.error())) return SettingReading{};
    return tl::unexpected(read.error());
  }
  SettingReading reading;
  if (level == rocm::kLevelAuto) {
    reading.is_known = true;
    return reading;
  }
  rocm::StructBuffer bytes = {};
  read = Call(session, "read the clock range", rocm.GetOverdrive, &bytes);
  if (!read && !IsUnsupported(read.error())) return tl::unexpected(read.error());
  const std::optional<rocm::OverdriveRanges> ranges =
      read ? rocm::ParseOverdrive(bytes) : std::nullopt;
  if (level != rocm::kLevelManual || !ranges) {
    reading.hint = fmt::format("the performance level is {}, not automatic (0)", level);
    reading.is_certain = true;
    return reading;
  }
  reading.is_known = true;
  reading.setting = SettingOf(*ranges);
  return reading;
}

DeviceResult<SettingReading> RocmDevice::ReadPowerCap(const Session& session) {
  std::uint64_t microwatts = 0;
  const DeviceResult<void> read = Call(session, "read the power limit",
                                       library_->api.functions.GetPowerCap, kSensor, &microwatts);
  if (!read) return tl::unexpected(read.error());
  const int milliwatts = static_cast<int>(microwatts / kMicrowattsPerMilliwatt);
  SettingReading reading{.is_known = true, .setting = std::nullopt, .hint = {}};
  if (milliwatts != info_.default_power_limit_mw) reading.setting = Setting{milliwatts, milliwatts};
  return reading;
}

DeviceResult<SettingReading> RocmDevice::ReadSetting(Control control) {
  const DeviceResult<Session> session = Begin();
  if (!session) return tl::unexpected(session.error());
  switch (control) {
    case Control::kSmClock:
      return ReadClockSetting(*session);
    case Control::kPowerLimit:
      return ReadPowerCap(*session);
    case Control::kMemoryClock:
      break;
  }
  return SettingReading{};
}

DeviceResult<void> RocmDevice::ApplyClock(const Session& session,
                                          const std::optional<Setting>& setting) {
  const rocm::Functions& rocm = library_->api.functions;
  if (!info_.measure_only.empty()) {
    return DeviceFail(DeviceErrorKind::kNotSupported, "{}: cannot set its clocks: {}", info_.uuid,
                      info_.measure_only);
  }
  if (!setting) return Call(session, "unlock the SM clock", rocm.SetLevel, rocm::kLevelAuto);
  const std::vector<int>& clocks = info_.sm_clocks_mhz;
  // The list has our own steps. The driver accepts clocks between them, and administrators use
  // them.
  if (setting->lower < clocks.front() || setting->upper > clocks.back() ||
      setting->lower > setting->upper) {
    return DeviceFail(DeviceErrorKind::kInvalid,
                      "{}: {} is not an SM clock of this GPU ({} from {} to {} MHz)", info_.uuid,
                      Describe(Control::kSmClock, setting), clocks.size(), clocks.front(),
                      clocks.back());
  }
  const rocm::ClockRange range = RangeOf(*setting, clocks.front());
  return Call(session, fmt::format("lock the SM clock to {}", Describe(Control::kSmClock, setting)),
              rocm.SetClockRange, static_cast<std::uint64_t>(range.lower_mhz),
              static_cast<std::uint64_t>(range.upper_mhz), rocm::kClockSystem);
}

DeviceResult<void> RocmDevice::ApplyPowerCap(const Session& session,
                                             const std::optional<Setting>& setting) {
  if (info_.default_power_limit_mw == 0) {
    return DeviceFail(DeviceErrorKind::kNotSupported, "{}: it has no power limit to set",
                      info_.uuid);
  }
  const int milliwatts = setting ? setting->upper : info_.default_power_limit_mw;
  if (setting && (setting->lower != setting->upper || milliwatts < info_.least_power_limit_mw ||
                  milliwatts > info_.most_power_limit_mw)) {
    return DeviceFail(DeviceErrorKind::kInvalid,
                      "{}: {} mW is not a power limit of this GPU ({} to {} mW)", info_.uuid,
                      milliwatts, info_.least_power_limit_mw, info_.most_power_limit_mw);
  }
  return Call(session, fmt::format("set the power limit to {} mW", milliwatts),
              library_->api.functions.SetPowerCap, kSensor,
              static_cast<std::uint64_t>(milliwatts) * kMicrowattsPerMilliwatt);
}

DeviceResult<void> RocmDevice::Apply(Control control, const std::optional<Setting>& setting) {
  const DeviceResult<Session> session = Begin();
  if (!session) return tl::unexpected(session.error());
  switch (control) {
    case Control::kSmClock:
      return ApplyClock(*session, setting);
    case Control::kPowerLimit:
      return ApplyPowerCap(*session, setting);
    case Control::kMemoryClock:
      break;
  }
  return DeviceFail(DeviceErrorKind::kNotSupported,
                    "{}: cannot set the memory clock (with ROCm SMI, Perseus sets SM clocks and "
                    "power limits)",
                    info_.uuid);
}

DeviceResult<Effect> RocmDevice::ReadEffect(Control control,
                                            const std::optional<Setting>& setting) {
  const DeviceResult<SettingReading> reading = ReadSetting(control);
  if (!reading) return tl::unexpected(reading.error());
  const DeviceResult<Session> session = Begin();
  if (!session) return tl::unexpected(session.error());
  const DeviceResult<int> clock = ReadClock(*session, rocm::kClockSystem);
  if (!clock) return tl::unexpected(clock.error());
  const bool is_so = reading->is_known && reading->setting == setting;
  return Effect{.state = is_so ? EffectState::kInEffect : EffectState::kPending,
                .sm_clock_mhz = *clock,
                .limits = {}};
}

}  // namespace perseus::device
