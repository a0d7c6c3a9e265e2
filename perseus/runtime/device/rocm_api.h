// The part of ROCm SMI's binary interface that Perseus uses. It is opened at run time, as
// nvml_api.h does for NVML.
//
// The interface differs between releases and GPUs. So every function except the first three may be
// null, and what a GPU can do is found out by calls. Two structs are read as bytes, without their
// declarations (Frequencies, OverdriveRanges).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

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
inline constexpr std::uint32_t kEdge = 0;
inline constexpr std::uint32_t kJunction = 1;
inline constexpr int kTemperatureNow = 0;

// The buffer for an rsmi_frequencies_t or rsmi_od_volt_freq_data_t. It has room for those of later
// releases.
using StructBuffer = std::array<std::byte, 4096>;

struct Functions {
  // rsmi_init, rsmi_shut_down, rsmi_num_monitor_devices. Below: rsmi_dev_..._get and _set.
  Code (*Init)(std::uint64_t flags) = nullptr;
  Code (*ShutDown)() = nullptr;
  Code (*CountDevices)(std::uint32_t*) = nullptr;

  Code (*StatusString)(Code, const char**) = nullptr;
  Code (*GetName)(std::uint32_t gpu, char*, std::size_t) = nullptr;
  Code (*GetUniqueId)(std::uint32_t gpu, std::uint64_t*) = nullptr;
  Code (*GetPciId)(std::uint32_t gpu, std::uint64_t*) = nullptr;
  Code (*GetAveragePower)(std::uint32_t gpu, std::uint32_t sensor, std::uint64_t* uw) = nullptr;
  Code (*GetPower)(std::uint32_t gpu, std::uint64_t* uw, int* kind) = nullptr;  // Since ROCm 6.
  Code (*GetEnergyCount)(std::uint32_t gpu, std::uint64_t* count, float* microjoules_each,
                         std::uint64_t* ns) = nullptr;
  Code (*GetTemperature)(std::uint32_t gpu, std::uint32_t sensor, int metric,
                         std::int64_t* millicelsius) = nullptr;
  Code (*GetFrequencies)(std::uint32_t gpu, int clock, StructBuffer*) = nullptr;
  Code (*GetOverdrive)(std::uint32_t gpu, StructBuffer*) = nullptr;
  Code (*GetPowerCap)(std::uint32_t gpu, std::uint32_t sensor, std::uint64_t* uw) = nullptr;
  Code (*GetDefaultPowerCap)(std::uint32_t gpu, std::uint64_t* uw) = nullptr;
  Code (*GetPowerCapRange)(std::uint32_t gpu, std::uint32_t sensor, std::uint64_t* most_uw,
                           std::uint64_t* least_uw) = nullptr;
  Code (*SetPowerCap)(std::uint32_t gpu, std::uint32_t sensor, std::uint64_t uw) = nullptr;
  Code (*GetLevel)(std::uint32_t gpu, int*) = nullptr;
  Code (*SetLevel)(std::uint32_t gpu, int) = nullptr;
  // Also sets the level to manual. The library asserts that the least clock is below the most.
  Code (*SetClockRange)(std::uint32_t gpu, std::uint64_t least_mhz, std::uint64_t most_mhz,
                        int clock) = nullptr;
};

struct Api {
  std::shared_ptr<void> library;
  Functions functions;
};

// An empty `file` means librocm_smi64.so in any version that the loader or /opt/rocm has. Fails
// (kSystem) with a remedy.
Result<Api> Load(std::string_view file);

// An rsmi_frequencies_t: {number, current, Hz[32]}. Since ROCm 6: {bool, number, current, Hz[33]}.
struct Frequencies {
  std::vector<int> mhz;
  std::optional<std::size_t> current;  // Empty if the driver names none of them.
};
// Empty if the bytes are valid in neither layout. They cannot be valid in both: `current` of one
// layout is a frequency in Hz, or a number above the count, in the other one.
std::optional<Frequencies> ParseFrequencies(const StructBuffer& bytes);

// The beginning of rsmi_od_volt_freq_data_t: the current ranges and the limits of both clocks.
struct ClockRange {
  int lower_mhz = 0;
  int upper_mhz = 0;
};
struct OverdriveRanges {
  ClockRange sm;
  ClockRange sm_limits;
};
std::optional<OverdriveRanges> ParseOverdrive(const StructBuffer& bytes);

}  // namespace perseus::device::rocm
