// The part of NVML's binary interface that Perseus uses. The library is opened at run time. So a
// build needs no header of NVIDIA, and a node without NVIDIA's driver needs no library.
//
// A name without a version suffix belongs to a function whose interface has never changed. A
// function is null if the driver lacks the function, because the driver is too old or too new.
// Perseus then uses the GPU without this function.
//
// Thread safety: NVML itself is thread-safe, except nvmlShutdown, which nvml_library.h guards.
#pragma once

#include <string>
#include <string_view>

#include "perseus/base/library_symbols.h"
#include "perseus/base/result.h"

namespace perseus::device::nvml {

struct OpaqueDevice;
using Handle = OpaqueDevice*;  // nvmlDevice_t. Valid until nvmlShutdown.

// nvmlReturn_t. The type is int, because a driver may return codes that are not listed here.
enum Code : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kLibraryNotFound = 12,
  kFunctionNotFound = 13,
  kGpuIsLost = 15,
  kResetRequired = 16,
  kOperatingSystem = 17,  // Blocked by the operating system, for example by a cgroup.
  kVersionMismatch = 18,  // Library and kernel module differ: an upgrade of the running driver.
  kFrequencyNotSupported = 24,
  kArgumentVersionMismatch = 25,
  kDeprecated = 26,
  kGpuNotFound = 28,
  kUnknown = 999,
};

// nvmlClockType_t, nvmlTemperatureSensors_t, nvmlEnableState_t.
inline constexpr unsigned kClockSm = 1;
inline constexpr unsigned kClockMemory = 2;
inline constexpr unsigned kTemperatureGpu = 0;
inline constexpr unsigned kEnabled = 1;

// Bits of nvmlDeviceGetCurrentClocksEventReasons and of the function with the older name.
inline constexpr unsigned long long kReasonIdle = 0x1;
inline constexpr unsigned long long kReasonSetting = 0x2;
inline constexpr unsigned long long kReasonPowerCap = 0x4;
// Set together with kReasonHardwareThermal, and together with kReasonPowerBrake.
inline constexpr unsigned long long kReasonHardware = 0x8;
inline constexpr unsigned long long kReasonThermal = 0x20;
inline constexpr unsigned long long kReasonHardwareThermal = 0x40;
inline constexpr unsigned long long kReasonPowerBrake = 0x80;

// Large enough for the texts that NVML calls UUID_V2 and NAME_V2.
inline constexpr unsigned kLongestText = 96;

// nvmlPciInfo_t of nvmlDeviceGetPciInfo_v3.
struct PciInfo {
  char short_bus_id[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned device_and_vendor;
  unsigned subsystem;
  char bus_id[32];  // "00000000:C1:00.0"
};
static_assert(sizeof(PciInfo) == 68);

// nvmlProcessInfo_t of nvmlDeviceGetComputeRunningProcesses_v2 and _v3. The drivers 535.43 to
// 535.86 use 32 bytes for it in _v3, and no call shows which size a driver uses. So only the first
// entry can be read, and a buffer needs room for entries of 32 bytes.
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance;
  unsigned compute_instance;
};
static_assert(sizeof(ProcessInfo) == 24);

struct Functions {
  LibrarySymbols library;
  int (*Init)() = library.Required("nvmlInit_v2");
  int (*Shutdown)() = library.Required("nvmlShutdown");
  const char* (*ErrorString)(int) = library.Required("nvmlErrorString");
  int (*GetCount)(unsigned* count) = library.Required("nvmlDeviceGetCount_v2");
  int (*GetHandleByIndex)(unsigned index,
                          Handle*) = library.Required("nvmlDeviceGetHandleByIndex_v2");
  int (*GetHandleByUUID)(const char* uuid, Handle*) = library.Required("nvmlDeviceGetHandleByUUID");
  int (*GetUUID)(Handle, char* text, unsigned size) = library.Required("nvmlDeviceGetUUID");
  int (*GetName)(Handle, char* text, unsigned size) = library.Required("nvmlDeviceGetName");
  int (*GetClockInfo)(Handle, unsigned clock_type,
                      unsigned* mhz) = library.Required("nvmlDeviceGetClockInfo");
  int (*GetPowerUsage)(Handle, unsigned* milliwatts) = library.Required("nvmlDeviceGetPowerUsage");

  // All functions below may be null.
  int (*SystemGetDriverVersion)(char* text,
                                unsigned size) = library.Optional("nvmlSystemGetDriverVersion");
  // `count` is the size of `processes` before the call, and the number of processes after the call.
  int (*GetComputeRunningProcesses)(Handle, unsigned* count, ProcessInfo* processes) =
      library.Optional("nvmlDeviceGetComputeRunningProcesses_v3");
  int (*GetPciInfo)(Handle, PciInfo*) = library.Optional("nvmlDeviceGetPciInfo_v3");
  int (*GetMinorNumber)(Handle, unsigned*) = library.Optional("nvmlDeviceGetMinorNumber");
  int (*GetPersistenceMode)(Handle, unsigned*) = library.Optional("nvmlDeviceGetPersistenceMode");
  int (*GetMigMode)(Handle, unsigned* now,
                    unsigned* after_reset) = library.Optional("nvmlDeviceGetMigMode");
  int (*GetMaxMigDeviceCount)(Handle,
                              unsigned*) = library.Optional("nvmlDeviceGetMaxMigDeviceCount");
  int (*GetMigDeviceHandleByIndex)(Handle, unsigned index, Handle*) =
      library.Optional("nvmlDeviceGetMigDeviceHandleByIndex");
  // `count` is the size of `mhz` before the call, and the number of clocks after the call.
  int (*GetSupportedMemoryClocks)(Handle, unsigned* count, unsigned* mhz) =
      library.Optional("nvmlDeviceGetSupportedMemoryClocks");
  int (*GetSupportedGraphicsClocks)(Handle, unsigned memory_mhz, unsigned* count, unsigned* mhz) =
      library.Optional("nvmlDeviceGetSupportedGraphicsClocks");
  int (*GetTotalEnergyConsumption)(Handle, unsigned long long* millijoules) =
      library.Optional("nvmlDeviceGetTotalEnergyConsumption");
  int (*GetTemperature)(Handle, unsigned sensor,
                        unsigned* celsius) = library.Optional("nvmlDeviceGetTemperature");
  int (*GetCurrentClocksEventReasons)(Handle, unsigned long long*) =
      library.Optional("nvmlDeviceGetCurrentClocksEventReasons");
  int (*GetPowerManagementLimit)(Handle, unsigned* milliwatts) =
      library.Optional("nvmlDeviceGetPowerManagementLimit");
  int (*GetPowerManagementDefaultLimit)(Handle, unsigned* milliwatts) =
      library.Optional("nvmlDeviceGetPowerManagementDefaultLimit");
  int (*GetPowerManagementLimitConstraints)(Handle, unsigned* least, unsigned* most) =
      library.Optional("nvmlDeviceGetPowerManagementLimitConstraints");
  int (*SetPowerManagementLimit)(Handle, unsigned milliwatts) =
      library.Optional("nvmlDeviceSetPowerManagementLimit");
  int (*SetGpuLockedClocks)(Handle, unsigned least_mhz,
                            unsigned most_mhz) = library.Optional("nvmlDeviceSetGpuLockedClocks");
  int (*ResetGpuLockedClocks)(Handle) = library.Optional("nvmlDeviceResetGpuLockedClocks");
  int (*SetMemoryLockedClocks)(Handle, unsigned least_mhz, unsigned most_mhz) =
      library.Optional("nvmlDeviceSetMemoryLockedClocks");
  int (*ResetMemoryLockedClocks)(Handle) = library.Optional("nvmlDeviceResetMemoryLockedClocks");
};

// Loads the library, without a call of Init. An empty `file` means libnvidia-ml.so.1 by the
// loader's rules. If no such library exists or it is not NVML, fails (kSystem) with a remedy.
Result<Functions> Load(std::string_view file);

}  // namespace perseus::device::nvml
