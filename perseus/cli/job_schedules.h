// What another schedule would save in a job of a server.
#pragma once

#include <string>
#include <string_view>

#include "perseus/base/result.h"
#include "perseus/planning/plan_file/plan_file.h"

namespace perseus::cli {

// A table with the schedule that the job runs and the best ones with 0, 1 and 2 more microbatches
// in flight than 1F1B, and what a next run would save with them. `profile_csv` is the job's
// profile.
Result<std::string> CompareSchedules(const plan_file::PlannedJob& job,
                                     std::string_view profile_csv);

}  // namespace perseus::cli
