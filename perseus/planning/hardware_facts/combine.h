// One estimate of many. Only the sources of this module use it.
#pragma once

#include <vector>

#include "perseus/planning/hardware_facts/hardware_facts.h"

namespace perseus::hardware_facts {

// The median of the values. Its interval covers all of theirs. Requires an estimate.
Estimate Combine(const std::vector<Estimate>& estimates);

}  // namespace perseus::hardware_facts
