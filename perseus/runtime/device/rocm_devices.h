// Which GPUs ROCm SMI has on this node, and what can be done with them.
#pragma once

#include <string_view>

#include "perseus/base/result.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/device/nvml_library.h"

namespace perseus::device {

// `file` empty: librocm_smi64.so by the loader's rules. Fails with kSystem, cause and remedy, where
// there is no driver. Refused are GPUs that tell neither a unique id nor their place on the bus.
Result<DeviceList> OpenRocmDevices(std::string_view file, DeviceClock clock = SteadyNow);

}  // namespace perseus::device
