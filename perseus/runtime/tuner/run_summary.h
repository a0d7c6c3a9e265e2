// The steps, time and energy of a run of a job, from its rank logs. Only sums are kept in memory,
// and a few numbers of each step, so logs may have any length.
//
// Waiting. Without a pipeline, ranks run the same work in each step, and then wait for the slowest
// one. In a step, a rank waits for as long as its instructions take less time than those of the
// slowest rank. What waits within an instruction is not seen, as in the backward of FSDP.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "perseus/base/result.h"
#include "perseus/runtime/tuner/job_logs.h"

namespace perseus::tuner {

struct RunSummary {
  int ranks = 0;  // The number of ranks with at least one step.
  // The number of ranks that ran their stages outside of a step (RANK.outside beside the logs).
  int ranks_outside = 0;
  int missing_ranks = 0;   // The number of ranks of the same pipelines without a step.
  std::int64_t steps = 0;  // The largest number of steps that a rank recorded.
  std::int64_t fewest_steps = 0;
  // The median time from step to step, averaged over the ranks with at least 2 steps. 0 if no such
  // rank exists.
  double step_time_s = 0;
  // The energy of all steps of all ranks together: mean power, times mean time from step to step,
  // times steps. If there is only one step: the difference of the first and the last value of the
  // counters. 0 if a rank has no energy.
  double energy_j = 0;
  // The energy of a median step: the mean power, times `step_time_s`. The first steps often take
  // longer, so `energy_j` may be more than this times `steps`.
  double energy_per_step_j = 0;
  // The median time of a step for which the mean rank waits for the slowest one, in steps without a
  // plan and with one. nullopt: no such steps, a pipeline, or a single rank.
  std::optional<double> waiting_s;
  std::optional<double> planned_waiting_s;
  // The mean of a step, of all ranks (rank_progress.h). 0: unknown.
  double samples_per_step = 0;
  double tokens_per_step = 0;
  std::int64_t planned_steps = 0;   // The steps of all ranks with an active plan.
  std::int64_t off_plan_steps = 0;  // Planned steps with another order than the plan.
  std::int64_t unset_steps = 0;  // Planned steps at the default clocks, because of a missing lease.
  // The steps of all ranks in which a GPU was at its power limit, the median of its clock then, and
  // the highest clock of all GPUs. 0 MHz: unknown.
  std::int64_t steps_at_power_limit = 0;
  int reached_mhz = 0;
  int highest_mhz = 0;
  // The steps of all ranks in which something else held a clock down, such as heat.
  Disturbance disturbance;
};

// Sums up the logs that changed at `since` or later. Other logs belong to an earlier run. If a
// process restarted its log (an elastic restart), the steps since the restart count. Incomplete and
// invalid lines are skipped. Fails (kSystem) if the logs cannot be read.
Result<RunSummary> SumUpRun(const std::filesystem::path& job_directory,
                            std::filesystem::file_time_type since);

}  // namespace perseus::tuner
