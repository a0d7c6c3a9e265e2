#include "perseus/runtime/device/nvml_api.h"

#include <utility>

namespace perseus::device::nvml {

Result<Functions> Load(std::string_view file) {
  const std::string name(file.empty() ? "libnvidia-ml.so.1" : file);
  auto opened = LibrarySymbols::Open(name);
  if (!opened) {
    return FailAs(ErrorKind::kSystem,
                  "cannot load NVML ({}): install NVIDIA's driver; in a container, start it with "
                  "the NVIDIA runtime and NVIDIA_DRIVER_CAPABILITIES=utility",
                  opened.error().Message());
  }
  Functions functions{*std::move(opened)};
  LibrarySymbols& library = functions.library;
  if (library.missing() != nullptr) {
    return FailAs(
        ErrorKind::kSystem,
        "{} lacks {}: it is not NVML, or its driver is older than 450 (name another file)", name,
        library.missing());
  }
  // Drivers before 510 and up to about 530 have the older names.
  if (functions.GetComputeRunningProcesses == nullptr) {
    functions.GetComputeRunningProcesses =
        library.Optional("nvmlDeviceGetComputeRunningProcesses_v2");
  }
  if (functions.GetCurrentClocksEventReasons == nullptr) {
    functions.GetCurrentClocksEventReasons =
        library.Optional("nvmlDeviceGetCurrentClocksThrottleReasons");
  }
  return functions;
}

}  // namespace perseus::device::nvml
