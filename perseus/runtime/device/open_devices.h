// Finds the GPUs of this node, with any driver.
#pragma once

#include <filesystem>
#include <string_view>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/runtime/device/device.h"

namespace perseus::device {

// Opens the virtual GPUs that a file describes. The runtime does not link the simulator: a program
// that has it passes virtual_gpu::OpenVirtualNode.
using OpenVirtual = Result<DeviceList> (*)(const std::filesystem::path& description);

// `which` is one of:
//   "auto"          NVML if its library and a GPU exist, otherwise ROCm SMI
//   "nvml"          libnvidia-ml.so.1 by the loader's rules; "nvml:FILE" is that library
//   "rocm"          librocm_smi64.so in any version that the loader finds; "rocm:FILE" is that
//                   library
//   "virtual:FILE"  the virtual GPUs that FILE describes, by `open_virtual`
// Fails (kInput) for anything else. Fails (kSystem), with cause and remedy, without a driver. GPUs
// that exist but cannot be used are no failure. They are in `refused`.
Result<DeviceList> OpenDevices(std::string_view which, OpenVirtual open_virtual);

// An empty `file` means libnvidia-ml.so.1 by the loader's rules. Fails (kSystem), with cause and
// remedy, without a driver. GPUs in MIG mode, their instances, and GPUs that do not report their
// UUID are in `refused`. A GPU whose clocks cannot be set is in `devices` (`measure_only` says
// why).
Result<DeviceList> OpenNvmlDevices(std::string_view file, DeviceClock clock = MonotonicNow);
// An empty `file` means librocm_smi64.so by the loader's rules. Fails (kSystem), with cause and
// remedy, without a driver. GPUs that report neither a unique id nor a PCI id are in `refused`.
Result<DeviceList> OpenRocmDevices(std::string_view file, DeviceClock clock = MonotonicNow);

}  // namespace perseus::device
