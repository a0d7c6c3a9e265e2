#include "perseus/runtime/device/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace perseus::device {

std::string_view NameOf(Control control) {
  switch (control) {
    case Control::kSmClock:
      return "SM clock";
    case Control::kMemoryClock:
      return "memory clock";
    case Control::kPowerLimit:
      return "power limit";
  }
  return "unknown control";
}

std::string Describe(Control control, const std::optional<Setting>& setting) {
  if (!setting) return "the driver's default";
  if (control == Control::kPowerLimit) {
    return fmt::format("{:g} W", setting->upper / kMilliwattsPerWatt);
  }
  if (setting->lower == setting->upper) return fmt::format("{} MHz", setting->upper);
  return fmt::format("{}-{} MHz", setting->lower, setting->upper);
}

std::string Describe(ClockLimits limits) {
  static constexpr std::pair<ClockLimit, const char*> kWords[] = {
      {ClockLimit::kIdle, "idle"},
      {ClockLimit::kSetting, "a clock setting"},
      {ClockLimit::kPowerCap, "power limit"},
      {ClockLimit::kThermal, "too hot"},
      {ClockLimit::kPowerBrake, "power brake"},
      {ClockLimit::kOther, "another reason"}};
  std::vector<std::string_view> words;
  for (const auto& [limit, word] : kWords) {
    if (limits.Has(limit)) words.emplace_back(word);
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

std::vector<std::string> NamesOfHoldingDown(ClockLimits limits) {
  std::vector<std::string> names;
  for (const auto& [limit, name] : kHoldingDown) {
    if (limits.Has(limit)) names.emplace_back(name);
  }
  return names;
}

bool IsHeldDown(ClockLimits limits) { return !NamesOfHoldingDown(limits).empty(); }

bool IsAtPowerLimit(ClockLimits limits) {
  return limits.Has(ClockLimit::kPowerCap) && NamesOfHoldingDown(limits).size() == 1;
}

DeviceResult<bool> IfSupported(const DeviceResult<void>& called) {
  if (!called && called.error().kind != DeviceErrorKind::kNotSupported) return Fail(called);
  return called.has_value();
}

DeviceResult<int> PowerLimitToSet(const DeviceInfo& info, const std::optional<Setting>& setting) {
  if (info.default_power_limit_mw == 0) {
    return DeviceFail(DeviceErrorKind::kNotSupported, "{}: it has no power limit to set",
                      info.uuid);
  }
  if (!setting) return info.default_power_limit_mw;
  if (setting->lower == setting->upper && setting->lower >= info.least_power_limit_mw &&
      setting->lower <= info.most_power_limit_mw) {
    return setting->upper;
  }
  return DeviceFail(DeviceErrorKind::kInvalid,
                    "{}: {} mW is not a power limit of this GPU ({} to {} mW)", info.uuid,
                    setting->upper, info.least_power_limit_mw, info.most_power_limit_mw);
}

std::string_view NameOf(CounterState state) {
  switch (state) {
    case CounterState::kUsed:
      return "used";
    case CounterState::kOnTrial:
      return "on_trial";
    case CounterState::kNone:
      return "none";
    case CounterState::kOfModule:
      return "of_module";
    case CounterState::kDisagrees:
      return "disagrees";
    case CounterState::kStandsStill:
      return "stands_still";
    case CounterState::kFalls:
      return "falls";
  }
  return "unknown";
}

std::string DescribeEnergy(const Telemetry& telemetry) {
  if (telemetry.scope == PowerScope::kModule) {
    return "its power and energy are those of its module, which has another GPU too: no plan can "
           "use them";
  }
  const auto counter = [&]() -> std::string_view {
    switch (telemetry.counter) {
      case CounterState::kUsed:
      case CounterState::kOnTrial:
        return "";
      case CounterState::kNone:
        return "no energy counter";
      case CounterState::kOfModule:
        return "its energy counter is that of a whole module (GPU, CPU and memory)";
      case CounterState::kDisagrees:
        return "its energy counter does not agree with its power";
      case CounterState::kStandsStill:
        return "its energy counter stands still";
      case CounterState::kFalls:
        return "its energy counter falls";
    }
    return "";
  }();
  if (counter.empty()) return {};
  return fmt::format("{}: {}", counter,
                     telemetry.power_w
                         ? "energy is integrated from power"
                         : "its energy is unknown, because the driver does not report its power");
}

DeviceResult<std::optional<double>> Device::ReadEnergy() {
  PERSEUS_ASSIGN_OR_RETURN(const Telemetry telemetry, Read());
  return telemetry.energy_j;
}

std::vector<DeviceResult<Telemetry>> EndTrials(const std::vector<Device*>& devices, Clock& clock) {
  constexpr Nanoseconds kBetweenReadings = 200 * kMillisecond;
  constexpr Nanoseconds kLongest = 4 * kSecond;
  const auto is_on_trial = [](const DeviceResult<Telemetry>& read) {
    return read && read->counter == CounterState::kOnTrial;
  };
  for (const Nanoseconds end = clock.Now() + kLongest;;) {
    std::vector<DeviceResult<Telemetry>> readings;
    for (Device* device : devices) readings.push_back(device->Read());
    if (std::ranges::none_of(readings, is_on_trial) || clock.Now() >= end) return readings;
    clock.WaitUntil(clock.Now() + kBetweenReadings);
  }
}

DeviceResult<std::string> Device::DescribePrograms() {
  return DeviceFail(DeviceErrorKind::kNotSupported, "{}: the driver does not list programs",
                    info().uuid);
}

DeviceResult<int> Device::ReadSmClock() {
  PERSEUS_ASSIGN_OR_RETURN(const Telemetry telemetry, Read());
  if (telemetry.sm_clock_mhz) return *telemetry.sm_clock_mhz;
  return DeviceFail(DeviceErrorKind::kNotSupported, "{}: the driver does not report the SM clock",
                    info().uuid);
}

}  // namespace perseus::device
