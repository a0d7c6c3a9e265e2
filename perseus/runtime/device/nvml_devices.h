// Finds the GPUs that NVML has on this node, and which of them can be used.
#pragma once

#include <string_view>

#include "perseus/base/result.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/device/nvml_library.h"

namespace perseus::device {

// An empty `file` means libnvidia-ml.so.1 by the loader's rules. Fails (kSystem), with cause and
// remedy, without a driver. GPUs in MIG mode, their instances, and GPUs that do not report their
// UUID are in `refused`. A GPU whose clocks cannot be set is in `devices` (`measure_only` says
// why).
Result<DeviceList> OpenNvmlDevices(std::string_view file, DeviceClock clock = SteadyNow);

}  // namespace perseus::device
