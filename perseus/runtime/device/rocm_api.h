// The part of ROCm SMI's binary interface that we use, opened at run time, as nvml_api.h does for
// NVML.
//
// The interface differs from release to release and from GPU to GPU, so that nothing is taken for
// granted: every function but the first three may be null, and what a GPU can do is found by
// asking. Two structs are read, both through bytes rather than declarations (Frequencies,
// OverdriveRanges).
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

// What the library writes an rsmi_frequencies_t or rsmi_od_volt_freq_data_t into, with room for
// those of later releases.
using StructBuffer = std::array<std::byte, 4096>;

struct Functions {
  // rsmi_init, rsmi_shut_down, rsmi_num_monitor_devices; from here on rsmi_dev_..._get and _set.
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
  // Sets the level to manual, too. The least must be below the most: the library asserts it.
  Code (*SetClockRange)(std::uint32_t gpu, std::uint64_t least_mhz, std::uint64_t most_mhz,
                        int clock) = nullptr;
};

struct Api {
  std::shared_ptr<void> library;
  Functions functions;
};

// `file` empty: librocm_smi64.so, whichever version the loader or /opt/rocm has. Fails with kSystem
// and a remedy.
Result<Api> Load(std::string_view file);

// An rsmi_frequencies_t: {number, current, Hz[32]}, since ROCm 6 {bool, number, current, Hz[33]}.
struct Frequencies {
  std::vector<int> mhz;
  std::optional<std::size_t> current;  // Nothing: the driver names none of them.
};
// Nothing if the bytes make sense in neither layout. They cannot in both: what is `current` in one
// is a frequency in Hz, or a number above the count, in the other.
std::optional<Frequencies> ParseFrequencies(const StructBuffer& bytes);

// What rsmi_od_volt_freq_data_t begins with: the ranges set and settable of both clocks.
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
