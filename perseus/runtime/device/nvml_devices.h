// Which GPUs NVML has on this node, and which of them can be used.
#pragma once

#include <string_view>

#include "perseus/base/result.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/device/nvml_library.h"

namespace perseus::device {

// `file` empty: libnvidia-ml.so.1 by the loader's rules. Fails with kSystem, cause and remedy,
// where there is no driver. Refused, with why: GPUs in MIG mode and their instances, and those that
// do not even tell their UUID. A GPU whose clocks cannot be set is among the devices
// (`measure_only`).
Result<DeviceList> OpenNvmlDevices(std::string_view file, DeviceClock clock = SteadyNow);

}  // namespace perseus::device
