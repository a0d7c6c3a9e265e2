#include "perseus/runtime/device/rocm_api.h"

#include <dlfcn.h>

#include <cstring>
#include <string>

#include "perseus/base/library_symbols.h"
#include "perseus/base/units.h"

namespace perseus::device::rocm {
namespace {

constexpr std::uint64_t kHertzPerMegahertz = 1'000'000;
constexpr std::uint64_t kMostHertz = kHighestFrequencyMhz * kHertzPerMegahertz;
constexpr std::uint32_t kMostFrequencies = 33;
constexpr std::uint32_t kNoCurrent = ~0U;

template <typename T>
T At(const StructBuffer& bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::optional<Frequencies> ParseFrequenciesAt(const StructBuffer& bytes, std::size_t header,
                                              std::size_t list) {
  const auto count = At<std::uint32_t>(bytes, header);
  const auto current = At<std::uint32_t>(bytes, header + 4);
  if (count == 0 || count > kMostFrequencies) return std::nullopt;
  if (current >= count && current != kNoCurrent) return std::nullopt;
  Frequencies frequencies;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto hertz = At<std::uint64_t>(bytes, list + i * sizeof(std::uint64_t));
    if (hertz > kMostHertz) return std::nullopt;
    frequencies.mhz.push_back(static_cast<int>(hertz / kHertzPerMegahertz));
  }
  if (current != kNoCurrent) frequencies.current = current;
  return frequencies;
}

std::optional<ClockRange> ParseRange(const StructBuffer& bytes, std::size_t offset) {
  const auto lower = At<std::uint64_t>(bytes, offset);
  const auto upper = At<std::uint64_t>(bytes, offset + 8);
  if (lower > upper || upper == 0 || upper > kMostHertz) return std::nullopt;
  return ClockRange{static_cast<int>(lower / kHertzPerMegahertz),
                    static_cast<int>(upper / kHertzPerMegahertz)};
}

void* Open(std::string_view file) {
  if (!file.empty()) return ::dlopen(std::string(file).c_str(), RTLD_NOW | RTLD_LOCAL);
  // Only the development package has the name without a version. The version numbers followed the
  // releases of ROCm, and then began at 1 again.
  for (const std::string directory : {"", "/opt/rocm/lib/"}) {
    for (const char* version : {"", ".1", ".7", ".6", ".5"}) {
      const std::string name = directory + "librocm_smi64.so" + version;
      if (void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    }
  }
  return nullptr;
}

void LookUpRocm(LibrarySymbols& symbols, Functions& f) {
  symbols.Required(f.Init, "rsmi_init");
  symbols.Required(f.ShutDown, "rsmi_shut_down");
  symbols.Required(f.CountDevices, "rsmi_num_monitor_devices");
  symbols.Optional(f.StatusString, "rsmi_status_string");
  symbols.Optional(f.GetName, "rsmi_dev_name_get");
  symbols.Optional(f.GetUniqueId, "rsmi_dev_unique_id_get");
  symbols.Optional(f.GetPciId, "rsmi_dev_pci_id_get");
  symbols.Optional(f.GetAveragePower, "rsmi_dev_power_ave_get");
  symbols.Optional(f.GetPower, "rsmi_dev_power_get");
  symbols.Optional(f.GetEnergyCount, "rsmi_dev_energy_count_get");
  symbols.Optional(f.GetTemperature, "rsmi_dev_temp_metric_get");
  symbols.Optional(f.GetFrequencies, "rsmi_dev_gpu_clk_freq_get");
  symbols.Optional(f.GetOverdrive, "rsmi_dev_od_volt_info_get");
  symbols.Optional(f.GetPowerCap, "rsmi_dev_power_cap_get");
  symbols.Optional(f.GetDefaultPowerCap, "rsmi_dev_power_cap_default_get");
  symbols.Optional(f.GetPowerCapRange, "rsmi_dev_power_cap_range_get");
  symbols.Optional(f.SetPowerCap, "rsmi_dev_power_cap_set");
  symbols.Optional(f.GetLevel, "rsmi_dev_perf_level_get");
  symbols.Optional(f.SetLevel, "rsmi_dev_perf_level_set_v1");
  symbols.Optional(f.SetClockRange, "rsmi_dev_clk_range_set");
}

}  // namespace

Result<Api> Load(std::string_view file) {
  void* const opened = Open(file);
  if (opened == nullptr) {
    const char* const reason = ::dlerror();
    return FailAs(ErrorKind::kSystem,
                  "cannot load ROCm SMI ({}): install rocm-smi-lib, or librocm-smi64-1 on Debian",
                  reason == nullptr ? "librocm_smi64.so" : reason);
  }
  Api api{.library = std::shared_ptr<void>(opened, [](void* library) { ::dlclose(library); }),
          .functions = {}};
  LibrarySymbols symbols(opened);
  LookUpRocm(symbols, api.functions);
  if (symbols.missing() != nullptr) {
    return FailAs(ErrorKind::kSystem, "{} is not ROCm SMI (name another file)",
                  file.empty() ? "librocm_smi64.so" : file);
  }
  return api;
}

std::optional<Frequencies> ParseFrequencies(const StructBuffer& bytes) {
  std::optional<Frequencies> frequencies = ParseFrequenciesAt(bytes, 0, 8);
  return frequencies ? frequencies : ParseFrequenciesAt(bytes, 4, 16);
}

std::optional<OverdriveRanges> ParseOverdrive(const StructBuffer& bytes) {
  // The current ranges of SM and memory come first, then their limits. Each has 16 bytes.
  const std::optional<ClockRange> sm = ParseRange(bytes, 0);
  const std::optional<ClockRange> limits = ParseRange(bytes, 32);
  if (!sm || !limits) return std::nullopt;
  return OverdriveRanges{.sm = *sm, .sm_limits = *limits};
}

}  // namespace perseus::device::rocm
