// Finds the GPUs that ROCm SMI has on this node, and what can be set on them.
#pragma once

#include <string_view>

#include "perseus/base/result.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/device/nvml_library.h"

namespace perseus::device {

// An empty `file` means librocm_smi64.so by the loader's rules. Fails (kSystem), with cause and
// remedy, without a driver. GPUs that report neither a unique id nor a PCI id are in `refused`.
Result<DeviceList> OpenRocmDevices(std::string_view file, DeviceClock clock = SteadyNow);

}  // namespace perseus::device
