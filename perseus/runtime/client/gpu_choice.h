// Chooses the GPU of a session.
#pragma once

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

// Opens the wanted GPU. `devices` is as in device::OpenDevices. `wanted` is one of:
//   - a UUID, or its beginning, as CUDA accepts it;
//   - a number among the GPUs that `visible` names (CUDA_VISIBLE_DEVICES; null: all GPUs);
//   - empty, for the only GPU.
// Numbers count in the order of the PCI bus, as CUDA does with CUDA_DEVICE_ORDER=PCI_BUS_ID. Fails
// (kInput) if there is no such GPU, or if `wanted` is empty and there are several. Fails also as
// device::OpenDevices does.
Result<ChosenGpu> OpenGpu(std::string_view devices, device::OpenVirtual open_virtual,
                          const std::string& wanted, const char* visible);

}  // namespace perseus::client
