// Real GPUs, with the kernels of kernels.h by libcuda. It needs no CUDA toolkit and no framework.
//
// A GPU is found in libcuda by its UUID. All memory, streams and kernels are made when the node is
// opened, because making them while a kernel runs may wait for that kernel. Kernels end by
// themselves after ten minutes, and when this process ends.
//
// Without libcuda, the node has the driver only: clocks, energy, power and the duration of calls.
// It then sees a clock only in the driver's readings. These may not show the clock of an idle GPU.
#pragma once

#include <memory>
#include <vector>

#include "perseus/runtime/qualifier/measured_node.h"

namespace perseus::qualifier {

// If libcuda is missing or does not show all of these GPUs, WhyNot() of the node says so. Requires
// at least one device. The devices have to outlive the node.
std::unique_ptr<MeasuredNode> OpenCudaNode(const std::vector<device::Device*>& devices);

}  // namespace perseus::qualifier
