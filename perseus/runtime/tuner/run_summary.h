// What a run of a job took, from its rank logs: steps, time and energy. It keeps only sums, so logs
// of any length are fine.
#pragma once

#include <cstdint>
#include <filesystem>

#include "perseus/base/result.h"

namespace perseus::tuner {

struct RunSummary {
  int ranks = 0;           // With at least one step.
  int missing_ranks = 0;   // Ranks of the same pipelines without a step.
  std::int64_t steps = 0;  // The most that a rank recorded.
  std::int64_t fewest_steps = 0;
  // The median time from step to step, averaged over the ranks with at least 2 steps. 0 without
  // any.
  double step_time_s = 0;
  // The energy of all ranks together. 0 if a rank has no energy.
  // All steps: mean power, times mean time from step to step, times steps. With one step: from the
  // first to the last value of the counters.
  double energy_j = 0;
  double energy_per_step_j = 0;     // The mean power, times `step_time_s`.
  std::int64_t planned_steps = 0;   // Steps of all ranks with an active plan.
  std::int64_t off_plan_steps = 0;  // Planned steps with another order than the plan.
  std::int64_t unset_steps = 0;     // Planned steps without a lease, so at the default clocks.
};

// Sums up the logs that changed at `since` or later: others are of an earlier run. If a process
// restarted its log (an elastic restart), the steps since then count. Incomplete and invalid lines
// are skipped. Fails (kSystem) if the logs cannot be read.
Result<RunSummary> SumUpRun(const std::filesystem::path& job_directory,
                            std::filesystem::file_time_type since);

}  // namespace perseus::tuner
