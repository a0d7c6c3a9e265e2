// Finds the GPUs of this node, with any driver.
#pragma once

#include <string_view>

#include "perseus/base/result.h"
#include "perseus/runtime/device/device.h"

namespace perseus::node_devices {

// `which` is one of:
//   "auto"          NVML if its library and a GPU exist, otherwise ROCm SMI
//   "nvml"          libnvidia-ml.so.1 by the loader's rules; "nvml:FILE" is that library
//   "rocm"          librocm_smi64.so in any version that the loader finds; "rocm:FILE" is that
//   library "virtual:FILE"  the virtual GPUs that FILE describes (virtual_node.h)
// Fails (kInput) for anything else. Fails (kSystem), with cause and remedy, without a driver. GPUs
// that exist but cannot be used are no failure. They are in `refused`.
Result<device::DeviceList> OpenDevices(std::string_view which);

}  // namespace perseus::node_devices
