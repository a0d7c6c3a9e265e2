// The limits of clock changes that `perseus plan` compared, read from the summary of its directory.
#pragma once

#include <filesystem>
#include <optional>

#include "perseus/base/result.h"
#include "perseus/planning/report/report.h"

namespace perseus::cli {

// Empty if `source` is not a directory with a summary, or if that run compared no limits. Fails
// (kInput) if the summary has something else in its place.
Result<std::optional<report::SwitchTradeoff>> ReadTradeoff(const std::filesystem::path& source);

}  // namespace perseus::cli
