// Remarks for the user about events that had no effect, or another effect than they say.
#pragma once

#include <string>
#include <vector>

#include "perseus/simulation/emulator/emulation.h"

namespace perseus::emulator {

// What was noticed of a spec's events, each by its index.
struct Noticed {
  std::vector<bool> disturbances;  // Something began while it was there.
  std::vector<bool> changes;       // In force in some iteration.
  std::vector<bool> power_caps;
};

// A line each. `time` is that of all iterations.
std::vector<std::string> RemarksOn(const plan::Planner& planner, const EmulationSpec& spec,
                                   Nanoseconds time, const Noticed& noticed);

}  // namespace perseus::emulator
