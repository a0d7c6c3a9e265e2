#include "perseus/runtime/device/device.h"

#include <fmt/format.h>

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

DeviceResult<double> Device::ReadEnergy() {
  PERSEUS_ASSIGN_OR_RETURN(const Telemetry telemetry, Read());
  return telemetry.energy_j;
}

DeviceResult<int> Device::ReadSmClock() {
  PERSEUS_ASSIGN_OR_RETURN(const Telemetry telemetry, Read());
  return telemetry.sm_clock_mhz;
}

}  // namespace perseus::device
