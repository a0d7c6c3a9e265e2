// The search for the schedule of a job, in the summary of `perseus plan --schedule auto`. It has
// what `perseus report` needs to compare the schedule with its reference again.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "perseus/base/result.h"
#include "perseus/planning/job/job_setup.h"
#include "perseus/planning/schedule_search/tradeoff.h"

namespace perseus::cli {

nlohmann::ordered_json DescribeSearch(const job::AutoSchedule& schedule,
                                      const schedule_search::Tradeoff& compared);

// The search behind the plans of `job`, which lie in the directory `source`. The schedule of the
// job gets its first plan again, on the profile of the job. Empty if `source` is not a directory
// with a summary, or if that run did not search. Fails (kInput) if the summary has something else
// in its place.
Result<std::optional<job::AutoSchedule>> ReadSearch(const std::filesystem::path& source,
                                                    const job::LoadedJob& job);

}  // namespace perseus::cli
