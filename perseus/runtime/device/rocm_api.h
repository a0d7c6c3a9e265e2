// The part of ROCm SMI's binary interface that Perseus uses. The library is opened at run time, as
// for NVML (nvml_api.h).
//
// The interface differs between releases and GPUs. So every function except the first three may be
// null, and calls show what a GPU can do. Two structs are read as bytes, without their declarations
// (Frequencies, OverdriveRanges).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "perseus/base/library_symbols.h"
#include "perseus/base/result.h"

namespace perseus::device::rocm {

// rsmi_status_t.
enum Code : std::uint32_t {
  kSuccess = 0,
  kInvalidArguments = 1,
  kNotSupported = 2,
  kPermission = 4,
  kOutOfBounds = 7,
  kInitError = 8,
  kNotYetImplemented = 9,
  kNotFound = 10,
};

// rsmi_clk_type_t, rsmi_dev_perf_level_t, rsmi_temperature_type_t, ..._metric_t.
inline constexpr int kClockSystem = 0;
inline constexpr int kClockMemory = 4;
inline constexpr int kLevelAuto = 0;
inline constexpr int kLevelManual = 3;
inline constexpr int kLevelDeterminism = 8;
inline constexpr std::uint32_t kEdge = 0;
inline constexpr std::uint32_t kJunction = 1;
inline constexpr int kTemperatureNow = 0;

// The buffer for an rsmi_frequencies_t or rsmi_od_volt_freq_data_t. The buffer also has room for
// the structs of later releases.
using StructBuffer = std::array<std::byte, 4096>;

struct Functions {
  LibrarySymbols library;
  Code (*Init)(std::uint64_t flags) = library.Required("rsmi_init");
  Code (*ShutDown)() = library.Required("rsmi_shut_down");
  Code (*CountDevices)(std::uint32_t*) = library.Required("rsmi_num_monitor_devices");

  Code (*StatusString)(Code, const char**) = library.Optional("rsmi_status_string");
  Code (*GetName)(std::uint32_t gpu, char*, std::size_t) = library.Optional("rsmi_dev_name_get");
  Code (*GetUniqueId)(std::uint32_t gpu,
                      std::uint64_t*) = library.Optional("rsmi_dev_unique_id_get");
  Code (*GetPciId)(std::uint32_t gpu, std::uint64_t*) = library.Optional("rsmi_dev_pci_id_get");
  Code (*GetAveragePower)(std::uint32_t gpu, std::uint32_t sensor,
                          std::uint64_t* uw) = library.Optional("rsmi_dev_power_ave_get");
  Code (*GetPower)(std::uint32_t gpu, std::uint64_t* uw,
                   int* kind) = library.Optional("rsmi_dev_power_get");  // Since ROCm 6.
  Code (*GetEnergyCount)(std::uint32_t gpu, std::uint64_t* count, float* microjoules_each,
                         std::uint64_t* ns) = library.Optional("rsmi_dev_energy_count_get");
  Code (*GetTemperature)(std::uint32_t gpu, std::uint32_t sensor, int metric,
                         std::int64_t* millicelsius) = library.Optional("rsmi_dev_temp_metric_get");
  Code (*GetFrequencies)(std::uint32_t gpu, int clock,
                         StructBuffer*) = library.Optional("rsmi_dev_gpu_clk_freq_get");
  Code (*GetOverdrive)(std::uint32_t gpu,
                       StructBuffer*) = library.Optional("rsmi_dev_od_volt_info_get");
  Code (*GetPowerCap)(std::uint32_t gpu, std::uint32_t sensor,
                      std::uint64_t* uw) = library.Optional("rsmi_dev_power_cap_get");
  Code (*GetDefaultPowerCap)(std::uint32_t gpu, std::uint64_t* uw) =
      library.Optional("rsmi_dev_power_cap_default_get");
  Code (*GetPowerCapRange)(std::uint32_t gpu, std::uint32_t sensor, std::uint64_t* most_uw,
                           std::uint64_t* least_uw) =
      library.Optional("rsmi_dev_power_cap_range_get");
  Code (*SetPowerCap)(std::uint32_t gpu, std::uint32_t sensor,
                      std::uint64_t uw) = library.Optional("rsmi_dev_power_cap_set");
  Code (*GetLevel)(std::uint32_t gpu, int*) = library.Optional("rsmi_dev_perf_level_get");
  Code (*SetLevel)(std::uint32_t gpu, int) = library.Optional("rsmi_dev_perf_level_set_v1");
  // Also sets the level to manual. The library asserts that the least clock is below the highest
  // clock.
  Code (*SetClockRange)(std::uint32_t gpu, std::uint64_t least_mhz, std::uint64_t most_mhz,
                        int clock) = library.Optional("rsmi_dev_clk_range_set");
  // Sets the level to determinism, with a highest SM clock.
  Code (*SetHighestClock)(std::uint32_t gpu,
                          std::uint64_t mhz) = library.Optional("rsmi_perf_determinism_mode_set");
};

// An empty `file` means librocm_smi64.so in any version that the loader or /opt/rocm has. Fails
// (kSystem) with a remedy if no such library can be loaded.
Result<Functions> Load(std::string_view file);

// An rsmi_frequencies_t: {number, current, Hz[32]}. Since ROCm 6: {bool, number, current, Hz[33]}.
struct Frequencies {
  std::vector<int> mhz;
  std::optional<std::size_t> current;  // nullopt if the driver names no current clock.
};
// Returns nullopt if the bytes are valid in neither layout. The bytes cannot be valid in both
// layouts. If they are read in the wrong layout, `current` is a part of a frequency in Hz, or it is
// the number of frequencies while the count is a bool. Neither is below the count, so neither is a
// valid index.
std::optional<Frequencies> ParseFrequencies(const StructBuffer& bytes);

// The beginning of rsmi_od_volt_freq_data_t: the current ranges and the limits of both clocks. The
// parser returns nullopt if the bytes have no current range.
struct ClockRange {
  int lower_mhz = 0;
  int upper_mhz = 0;
};
struct OverdriveRanges {
  ClockRange sm;
  std::optional<ClockRange> sm_limits;  // Absent on AMD Instinct, which has no overdrive.
};
std::optional<OverdriveRanges> ParseOverdrive(const StructBuffer& bytes);

}  // namespace perseus::device::rocm
