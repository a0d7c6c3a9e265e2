// Finds the GPUs of this node, with any driver.
#pragma once

#include <string_view>

#include "perseus/base/result.h"
#include "perseus/runtime/device/device.h"

namespace perseus::node_devices {

// `which`:
//   "auto"          NVML if its library and a GPU are here, else ROCm SMI
//   "nvml"          libnvidia-ml.so.1, by the loader's rules; "nvml:FILE": that library
//   "rocm"          librocm_smi64.so (any version the loader finds); "rocm:FILE": that library
//   "virtual:FILE"  the virtual GPUs that FILE describes (virtual_node.h)
// Fails with kInput for anything else and with kSystem, cause and remedy where there is no driver.
// GPUs that are there but cannot be used are no failure: they are in `refused`.
Result<device::DeviceList> OpenDevices(std::string_view which);

}  // namespace perseus::node_devices
