// What `perseus report` reads from the summary of a run of `perseus plan`: its limits of clock
// changes, and whether the user stopped it.
#pragma once

#include <filesystem>
#include <optional>

#include "perseus/base/result.h"
#include "perseus/planning/report/report.h"

namespace perseus::cli {

// The limits that the run compared. Empty if `source` is not a directory with a summary, or if that
// run compared no limits. Fails (kInput) if the summary has something else in its place.
Result<std::optional<report::SwitchTradeoff>> ReadTradeoff(const std::filesystem::path& source);

// The limit that all plans of the run keep. Empty if one has none, or without a summary. Fails in
// the same way.
Result<std::optional<int>> ReadMostSwitches(const std::filesystem::path& source);

// Whether the user stopped the run. False without a summary. Fails in the same way.
Result<bool> ReadStoppedEarly(const std::filesystem::path& source);

}  // namespace perseus::cli
