// Chooses the GPU of a session.
#pragma once

#include <memory>
#include <string>

#include "perseus/base/result.h"
#include "perseus/runtime/device/device.h"

namespace perseus::client {

struct ChosenGpu {
  std::string uuid;
  std::unique_ptr<device::Device> device;  // Null where it cannot be measured.
  std::shared_ptr<Clock> clock = std::make_shared<RealClock>();  // From device::DeviceList.
};

// `wanted`: a UUID, or its beginning as CUDA takes it; a number, counted among those that `visible`
// (CUDA_VISIBLE_DEVICES; null: all) names; empty: the only one. Numbers count in the order of the
// PCI bus, as CUDA does with CUDA_DEVICE_ORDER=PCI_BUS_ID. Takes the device out of the list. Fails
// (kInput) if the list does not have the GPU, or if `wanted` is empty and there are several.
Result<ChosenGpu> ChooseGpu(device::DeviceList& list, const std::string& wanted,
                            const char* visible);

}  // namespace perseus::client
