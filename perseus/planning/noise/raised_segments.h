// Makes a plan faster by whole segments of equal clocks.
//
// Where a clock change costs time or energy, a faster clock for one instruction costs two changes.
// A faster clock for all instructions from one change to the next costs none, and may save changes
// where it meets its neighbor. So with a switch cost, this is the better way to a margin.
#pragma once

#include <vector>

#include "perseus/planning/noise/noisy_execution.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::noise {

// Raises the clocks of segments by one measured step each, those first that cost the least energy
// per second of mean time, until the mean time of `execution` is at most `target_s`. Returns
// whether it is. `options` has an option for each instruction.
bool RaiseSegments(const plan::Planner& planner, const NoisyExecution& execution, double target_s,
                   std::vector<int>& options);

}  // namespace perseus::noise
