// Real GPUs, with the kernels of kernels.h. This file uses libcuda, and needs no CUDA toolkit and
// no framework.
//
// The UUID identifies a GPU in libcuda. All memory, streams and kernels are created when the node
// is opened, because creating them while a kernel runs may wait for that kernel. Kernels end by
// themselves after ten minutes, and when this process ends.
//
// Without libcuda, the node has only the driver: clocks, energy, power and the duration of calls.
// It then sees a clock only in the driver's readings. These readings may not show the clock of an
// idle GPU.
#pragma once

#include <memory>
#include <vector>

#include "perseus/runtime/qualifier/measured_node.h"

namespace perseus::qualifier {

// Opens a node with these GPUs. If libcuda is missing, or does not show all of these GPUs, WhyNot()
// of the node says so. Requires at least one device. The devices have to outlive the node.
std::unique_ptr<MeasuredNode> OpenCudaNode(const std::vector<device::Device*>& devices);

}  // namespace perseus::qualifier
