// A GPU of a virtual node as a Device: what its driver reports.
#pragma once

#include <memory>

#include "perseus/runtime/device/device.h"
#include "perseus/simulation/virtual_gpu/virtual_node_memory.h"

namespace perseus::virtual_gpu {

// Requires that the node has that GPU.
std::unique_ptr<device::Device> MakeVirtualDevice(std::shared_ptr<VirtualNodeMemory> memory,
                                                  int gpu);

}  // namespace perseus::virtual_gpu
