// Real GPUs, with the kernels of kernels.h by libcuda. It needs no CUDA toolkit and no framework.
//
// A GPU is found in libcuda by its UUID. All memory, streams and kernels are made when the node is
// opened, because making them while a kernel runs may wait for that kernel. Kernels end by
// themselves after ten minutes, and when this process ends.
//
// Without libcuda, the node has the driver only: clocks, energy, power and the duration of calls.
// It then sees a clock only in the driver's readings, which an idle GPU may not show.
#pragma once

#include <memory>
#include <vector>

#include "perseus/runtime/qualifier/measured_node.h"

namespace perseus::qualifier {

// If libcuda is missing or does not show all of these GPUs, WhyNot() of the node says so. The
// devices have to outlive it; at least one.
std::unique_ptr<MeasuredNode> OpenCudaNode(const std::vector<device::Device*>& devices);

}  // namespace perseus::qualifier
