// Finds likely mistakes in the input of a plan: a wrong unit, a measurement instead of a setting,
// or the power of a whole stage instead of the power of one GPU.
#pragma once

#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/job/job_setup.h"

namespace perseus::job {

// Fails (kInput) for impossible input:
//   - a clock below 20 MHz or above 6 GHz;
//   - a computation that draws less than 5 W or more than 20 kW on each GPU;
//   - a row with a time or power that differs from the neighboring clocks by a factor of 2;
//   - a waiting power that is at least the power of a computation at maximum frequency;
//   - an additional column that seems to be a measurement, not a setting.
// Otherwise returns warnings, each one line with the reason:
//   - a blocking power above 80 % of the median power of the computations, or below 1 W, but not 0;
//   - a blocking power above the power of a computation at its lowest clock;
//   - rows that differ from their neighbors by a factor of 1.2, or from other rows of the same
//     option;
//   - computations of more than 2 kW on a GPU, or of four times the power of most computations;
//   - a maximum clock that differs between instructions;
//   - a single stage with a forward that takes longer than its backward;
//   - transfers, fixed instructions and clock changes that take longer than computations;
//   - an additional knob with one value for each frequency (probably a measurement, not a setting);
//   - an interleaved schedule with one chunk on each pp_rank;
//   - instructions with only one useful option, which every plan has to use. They have one common
//     warning, with the file and the line of the first one.
// Returns no warnings for a general graph, whose resources need not be GPUs.
Result<std::vector<std::string>> CheckPlausible(const LoadedJob& job);

// Whether the schedule is interleaved in name only: each pp_rank has one chunk. Then it is 1F1B
// that holds more microbatches. A training may run it, so a plan for it only gets a warning. But
// its saving says nothing about interleaving, so a comparison of schedules refuses it.
bool InterleavesNothing(const schedule::Schedule& schedule);

}  // namespace perseus::job
