// The simulated GPUs that the description of a virtual node means.
#pragma once

#include "perseus/runtime/qualifier/simulated_node.h"
#include "perseus/simulation/virtual_gpu/virtual_node_file.h"

namespace perseus::cli {

// The state, the clock and the temperature of the virtual node have no effect: the simulated node
// is a new one, in time of its own.
qualifier::SimulatedModel ModelOf(const virtual_gpu::VirtualNodeSpec& spec);

}  // namespace perseus::cli
