// The measured computations of a job, and where they are in the file of its profile.
#pragma once

#include <string>
#include <vector>

#include "perseus/planning/job/job_setup.h"

namespace perseus::job {

// The options of each computation.
using Computations = std::vector<const schedule::OptionSet*>;

Computations ComputationsOf(const LoadedJob& job);

// The option at maximum frequency.
const profile::Option& BaselineOf(const schedule::OptionSet& set);

// Of each of `gpus` GPUs that share the energy.
double PowerW(const profile::Option& option, int gpus);

// "profile.csv:17: stage 0 forward", with the line where the options of the set begin, or that of
// `option`. Without a line if the profile is not a file that can be read again.
std::string Place(const LoadedJob& job, const schedule::OptionSet& set,
                  const profile::Option* option = nullptr);

}  // namespace perseus::job
