// The middle of measured values. Only the sources of this module use it.
#pragma once

#include <vector>

#include "perseus/planning/hardware_facts/hardware_facts.h"

namespace perseus::hardware_facts {

// The mean of the middle two if the number of values is even. Requires a value.
double Median(std::vector<double> values);

// The median of the values. Its interval covers all of theirs. Requires an estimate.
Estimate Combine(const std::vector<Estimate>& estimates);

}  // namespace perseus::hardware_facts
