// Chooses the GPU of a session.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "perseus/base/result.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/device/open_devices.h"

namespace perseus::client {

struct ChosenGpu {
  std::string uuid;
  std::unique_ptr<device::Device> device;                        // Null if it cannot be measured.
  std::shared_ptr<Clock> clock = std::make_shared<RealClock>();  // From device::DeviceList.
};

// The variables by which a program limits the GPUs that its process sees. A null one is not set.
// CUDA reads only CUDA_VISIBLE_DEVICES. On AMD GPUs, ROCR_VISIBLE_DEVICES chooses first. Then
// HIP_VISIBLE_DEVICES chooses among these GPUs, or CUDA_VISIBLE_DEVICES if HIP_VISIBLE_DEVICES is
// not set or empty.
struct VisibleGpus {
  const char* cuda = nullptr;
  const char* hip = nullptr;
  const char* rocr = nullptr;
  static VisibleGpus FromEnvironment();
};

// Opens the wanted GPU. `devices` is as in device::OpenDevices. `wanted` is one of:
//   - a UUID, or its beginning, as CUDA accepts it;
//   - a number among the visible GPUs;
//   - empty, for the only GPU.
// Numbers count in the order of the PCI bus, as CUDA does with CUDA_DEVICE_ORDER=PCI_BUS_ID. They
// also count GPUs that cannot be used, as CUDA does. Fails (kInput) if there is no such GPU, if the
// GPU cannot be used (MIG), or if `wanted` is empty and there are several. Fails also as
// device::OpenDevices does.
Result<ChosenGpu> OpenGpu(std::string_view devices, device::OpenVirtual open_virtual,
                          const std::string& wanted, const VisibleGpus& visible);
// The same choice among these GPUs. Returns the place in `usable`.
Result<std::size_t> ChooseGpu(const device::FoundDevices& found, const std::string& wanted,
                              const VisibleGpus& visible);

// Whether this is the name of a MIG instance, which is a part of a GPU without a clock of its own.
bool IsMigInstance(std::string_view name);
// The error for a session that gets this name.
tl::unexpected<Error> FailForMigInstance(std::string_view name);

}  // namespace perseus::client
