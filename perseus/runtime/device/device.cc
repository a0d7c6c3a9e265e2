#include "perseus/runtime/device/device.h"

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
  if (control == Control::kPowerLimit) return fmt::format("{:g} W", setting->upper / 1000.0);
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

DeviceResult<double> Device::ReadEnergy() {
  const DeviceResult<Telemetry> telemetry = Read();
  if (!telemetry) return tl::unexpected(telemetry.error());
  return telemetry->energy_j;
}

DeviceResult<int> Device::ReadSmClock() {
  const DeviceResult<Telemetry> telemetry = Read();
  if (!telemetry) return tl::unexpected(telemetry.error());
  return telemetry->sm_clock_mhz;
}

}  // namespace perseus::device
