// Finds all GPUs of this node, or one of them, with any driver.
//
// One GPU. A process of a training needs one GPU of eight. Reading everything about all eight took
// 106 calls of NVML, and NVML takes a lock in each call. So OpenDevice reads only what identifies
// the GPUs, until one GPU is chosen. If NVML knows the UUID of the wanted GPU, OpenDevice looks at
// no other GPU (at most ten calls).
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/runtime/device/device.h"

namespace perseus::device {

// Opens the virtual GPUs that a file describes. The runtime does not link the simulator. A program
// that links the simulator passes virtual_gpu::OpenVirtualNode.
using OpenVirtual = Result<DeviceList> (*)(const std::filesystem::path& description);

// `which` is one of:
//   "auto"          NVML if its library and a GPU exist, otherwise ROCm SMI
//   "nvml"          libnvidia-ml.so.1 by the loader's rules; "nvml:FILE" is that library
//   "rocm"          librocm_smi64.so in any version that the loader finds; "rocm:FILE" is that
//                   library
//   "virtual:FILE"  the virtual GPUs that FILE describes, by `open_virtual`
// Fails (kInput) for any other text. If no driver exists, fails (kSystem) with cause and remedy. A
// GPU that exists but cannot be used is in `refused`, and is no failure.
Result<DeviceList> OpenDevices(std::string_view which, OpenVirtual open_virtual);

// The names that identify a GPU.
struct DeviceName {
  std::string uuid;
  std::string pci_bus_id;  // Empty if the GPU has none.
};
struct FoundDevices {
  bool are_amd = false;
  std::vector<DeviceName> usable;
  std::vector<RefusedDevice> refused;
};
struct WantedDevice {
  std::string uuid;  // Empty: only `choose` identifies the GPU.
  // Returns the index of the GPU in `usable`, or fails. Called if the driver does not find the GPU
  // by its UUID.
  std::function<Result<std::size_t>(const FoundDevices&)> choose;
};
// Opens one GPU, to measure it. `devices` contains only this GPU. With NVML, its `info` has only
// the names, the clocks and `measure_only`: no power limits, no numbers and no file. Fails in the
// same cases as OpenDevices and as `choose`.
Result<DeviceList> OpenDevice(std::string_view which, OpenVirtual open_virtual,
                              const WantedDevice& wanted);

// An empty `file` means libnvidia-ml.so.1 by the loader's rules. If no driver exists, fails
// (kSystem) with cause and remedy. GPUs in MIG mode, their instances, and GPUs that do not report
// their UUID are in `refused`. A GPU whose clocks cannot be set is in `devices`, and its
// `measure_only` says why.
Result<DeviceList> OpenNvmlDevices(std::string_view file, DeviceClock clock = MonotonicNow);
// Opens one GPU as OpenDevice does. If no GPU exists, `devices` and `refused` are empty.
Result<DeviceList> OpenNvmlDevice(std::string_view file, const WantedDevice& wanted,
                                  DeviceClock clock = MonotonicNow);
// An empty `file` means librocm_smi64.so by the loader's rules. If no driver exists, fails
// (kSystem) with cause and remedy. GPUs that report neither a unique id nor a PCI id are in
// `refused`.
Result<DeviceList> OpenRocmDevices(std::string_view file, DeviceClock clock = MonotonicNow);

}  // namespace perseus::device
