// The plans that a user names: files, or directories that `perseus plan -o` wrote.
#pragma once

#include <string>
#include <vector>

#include "perseus/base/result.h"

namespace perseus::cli {

// Replaces each directory by the plans in it, in the order in which the run wrote
// them: by time. Fails (kInput) if a
// directory has no plans.
Result<std::vector<std::string>> PlanPaths(const std::vector<std::string>& sources);

}  // namespace perseus::cli
