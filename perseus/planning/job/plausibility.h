// Finds likely mistakes in the input of a plan: a wrong unit, a measurement that is taken for a
// setting, a power of the stage instead of one GPU.
#pragma once

#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/job/job_setup.h"

namespace perseus::job {

// Fails (kInput) if the input cannot be: a highest clock below 20 MHz or above 20 GHz, a
// computation that draws less than 5 W or more than 20 kW on each GPU, a row with a power far from
// that of the other rows of its instruction, a GPU that draws at least as much while it waits as in
// any computation at maximum frequency, or a further knob that is a measurement. Otherwise returns
// warnings, each one line with the reason:
//   - a blocking power above 80 % of the median power of the computations, or below 1 W, but not 0;
//   - a further knob that differs, but never at the same frequency;
//   - an interleaved schedule with one chunk on each pp_rank;
//   - instructions with only one useful option, which every plan has to keep. Of these, there is
//     one warning with the file and the line of the first one.
// Returns nothing for a general graph, whose resources need not be GPUs.
Result<std::vector<std::string>> CheckPlausible(const LoadedJob& job);

}  // namespace perseus::job
