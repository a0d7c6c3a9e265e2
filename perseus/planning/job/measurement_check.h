// Finds likely mistakes in the measurements of a profile: a wrong unit, a typing error in a row,
// stages that were measured in different ways.
#pragma once

#include <string>
#include <vector>

#include "perseus/base/result.h"
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

// Fails (kInput) and adds warnings as CheckPlausible says.
Result<void> CheckMeasurements(const LoadedJob& job, const Computations& computations,
                               std::vector<std::string>& warnings);

}  // namespace perseus::job
