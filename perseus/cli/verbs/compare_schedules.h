// Compares schedules of one job with each other (`perseus compare --schedule A --schedule B`).
#pragma once

#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cli/flags/figure_flags.h"
#include "perseus/cli/terminal/standard_output.h"
#include "perseus/planning/job/job_setup.h"

namespace perseus::cli {

struct ScheduleComparisonFlags {
  job::JobSettings job;                // Its schedule is ignored.
  std::vector<std::string> schedules;  // The first one, at maximum frequency, is the baseline.
  FigureFlags figures;
  bool as_json = false;
};

// Plans each schedule for the iteration time of the baseline, or for its own time at maximum
// frequency if this is longer. Prints one table, and draws one frontier and all timelines.
Result<void> CompareSchedules(const Streams& streams, const ScheduleComparisonFlags& flags);

}  // namespace perseus::cli
