// Real GPUs with the kernels of kernels.h, by libcuda. It needs no CUDA toolkit and no framework.
//
// A GPU is found in libcuda by its UUID. All memory, streams and kernels are made when the node is
// opened, because making them while a kernel runs may wait for that kernel. Kernels end by
// themselves after ten minutes, and when this process ends.
#pragma once

#include <memory>
#include <vector>

#include "perseus/runtime/qualifier/measured_node.h"

namespace perseus::qualifier {

// A node with kernels; or one without (driver_node.h), which says why, if libcuda is missing or
// does not show all of these GPUs. The devices have to outlive it; at least one.
std::unique_ptr<MeasuredNode> OpenCudaNode(const std::vector<device::Device*>& devices);

}  // namespace perseus::qualifier
