// A GPU of a virtual node as a Device: what a driver would say, and the faults it was told to have.
#pragma once

#include <memory>

#include "perseus/device/device.h"
#include "perseus/device/virtual_node_memory.h"

namespace perseus {

// Requires that the node has that GPU.
std::unique_ptr<Device> MakeVirtualDevice(std::shared_ptr<VirtualNodeMemory> memory, int gpu);

}  // namespace perseus
