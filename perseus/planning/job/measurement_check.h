// Finds likely mistakes in the measurements of a profile: a wrong unit, a typing error in a row,
// stages that were measured in different ways.
#pragma once

#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/job/profile_rows.h"

namespace perseus::job {

// Fails (kInput) and adds warnings as CheckPlausible says.
Result<void> CheckMeasurements(const LoadedJob& job, const Computations& computations,
                               std::vector<std::string>& warnings);

}  // namespace perseus::job
