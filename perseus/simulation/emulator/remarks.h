// Remarks for the user about events that had no effect, or another effect than the file says.
#pragma once

#include <string>
#include <vector>

#include "perseus/simulation/emulator/emulation.h"

namespace perseus::emulator {

// Which events of a spec had an effect, each by its index.
struct Noticed {
  std::vector<bool> disturbances;  // An instruction began while the disturbance was present.
  std::vector<bool> changes;       // The plan was in force in some iteration.
  std::vector<bool> power_caps;    // The cap was in force in some iteration.
};

// One line for each remark. `time` is the time of all iterations.
std::vector<std::string> RemarksOn(const plan::Planner& planner, const EmulationSpec& spec,
                                   Nanoseconds time, const Noticed& noticed);

}  // namespace perseus::emulator
