#include "perseus/runtime/device/nvml_api.h"

#include <dlfcn.h>

#include "perseus/base/library_symbols.h"

namespace perseus::device::nvml {
namespace {

void LookUpRequired(LibrarySymbols& symbols, Functions& f) {
  symbols.Required(f.Init, "nvmlInit_v2");
  symbols.Required(f.Shutdown, "nvmlShutdown");
  symbols.Required(f.ErrorString, "nvmlErrorString");
  symbols.Required(f.GetCount, "nvmlDeviceGetCount_v2");
  symbols.Required(f.GetHandleByIndex, "nvmlDeviceGetHandleByIndex_v2");
  symbols.Required(f.GetHandleByUUID, "nvmlDeviceGetHandleByUUID");
  symbols.Required(f.GetUUID, "nvmlDeviceGetUUID");
  symbols.Required(f.GetName, "nvmlDeviceGetName");
  symbols.Required(f.GetClockInfo, "nvmlDeviceGetClockInfo");
  symbols.Required(f.GetPowerUsage, "nvmlDeviceGetPowerUsage");
}

void LookUpOptional(LibrarySymbols& symbols, Functions& f) {
  symbols.Optional(f.SystemGetDriverVersion, "nvmlSystemGetDriverVersion");
  symbols.Optional(f.GetComputeRunningProcesses, "nvmlDeviceGetComputeRunningProcesses_v3");
  if (f.GetComputeRunningProcesses == nullptr) {  // Drivers before 510 have the older name.
    symbols.Optional(f.GetComputeRunningProcesses, "nvmlDeviceGetComputeRunningProcesses_v2");
  }
  symbols.Optional(f.GetPciInfo, "nvmlDeviceGetPciInfo_v3");
  symbols.Optional(f.GetMinorNumber, "nvmlDeviceGetMinorNumber");
  symbols.Optional(f.GetPersistenceMode, "nvmlDeviceGetPersistenceMode");
  symbols.Optional(f.GetMigMode, "nvmlDeviceGetMigMode");
  symbols.Optional(f.GetMaxMigDeviceCount, "nvmlDeviceGetMaxMigDeviceCount");
  symbols.Optional(f.GetMigDeviceHandleByIndex, "nvmlDeviceGetMigDeviceHandleByIndex");
  symbols.Optional(f.GetSupportedMemoryClocks, "nvmlDeviceGetSupportedMemoryClocks");
  symbols.Optional(f.GetSupportedGraphicsClocks, "nvmlDeviceGetSupportedGraphicsClocks");
  symbols.Optional(f.GetTotalEnergyConsumption, "nvmlDeviceGetTotalEnergyConsumption");
  symbols.Optional(f.GetTemperature, "nvmlDeviceGetTemperature");
  symbols.Optional(f.GetCurrentClocksEventReasons, "nvmlDeviceGetCurrentClocksEventReasons");
  if (f.GetCurrentClocksEventReasons == nullptr) {  // Drivers up to about 530 have the older name.
    symbols.Optional(f.GetCurrentClocksEventReasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  }
  symbols.Optional(f.GetPowerManagementLimit, "nvmlDeviceGetPowerManagementLimit");
  symbols.Optional(f.GetPowerManagementDefaultLimit, "nvmlDeviceGetPowerManagementDefaultLimit");
  symbols.Optional(f.GetPowerManagementLimitConstraints,
                   "nvmlDeviceGetPowerManagementLimitConstraints");
  symbols.Optional(f.SetPowerManagementLimit, "nvmlDeviceSetPowerManagementLimit");
  symbols.Optional(f.SetGpuLockedClocks, "nvmlDeviceSetGpuLockedClocks");
  symbols.Optional(f.ResetGpuLockedClocks, "nvmlDeviceResetGpuLockedClocks");
  symbols.Optional(f.SetMemoryLockedClocks, "nvmlDeviceSetMemoryLockedClocks");
  symbols.Optional(f.ResetMemoryLockedClocks, "nvmlDeviceResetMemoryLockedClocks");
}

}  // namespace

Result<Api> Load(std::string_view file) {
  const std::string name(file.empty() ? "libnvidia-ml.so.1" : file);
  void* const opened = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* const reason = ::dlerror();
    return FailAs(ErrorKind::kSystem,
                  "cannot load NVML ({}): install NVIDIA's driver; in a container, start it with "
                  "the NVIDIA runtime and NVIDIA_DRIVER_CAPABILITIES=utility",
                  reason == nullptr ? name : reason);
  }
  Api api{.library = std::shared_ptr<void>(opened, [](void* library) { ::dlclose(library); }),
          .functions = {}};
  LibrarySymbols symbols(opened);
  LookUpRequired(symbols, api.functions);
  if (symbols.missing() != nullptr) {
    return FailAs(
        ErrorKind::kSystem,
        "{} lacks {}: it is not NVML, or its driver is older than 450 (name another file)", name,
        symbols.missing());
  }
  LookUpOptional(symbols, api.functions);
  return api;
}

}  // namespace perseus::device::nvml
