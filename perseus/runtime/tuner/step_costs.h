// Time and energy of whole steps, from the logs and the energy counters alone, independent of the
// measurements of single instructions.
#pragma once

#include <cstdint>
#include <set>

#include "perseus/base/result.h"
#include "perseus/runtime/tuner/job_logs.h"

namespace perseus::tuner {

// Steps [begin, end) as ordered by that version.
struct StepRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t version = 0;
};

// Time from step to step, and all ranks' energy, per step.
struct StepCost {
  double time_s = 0;
  double energy_j = 0;
};

// The mean. Fails with what is lacking: all of them have to have been run under that version, and
// the step behind them be there.
Result<StepCost> CostOfSteps(const JobLogs& logs, const std::set<protocol::RankId>& ranks,
                             const StepRange& range);

// Requires begin < end. The mean energy, and the median time: a checkpoint or a stalled thread in
// one of them is not what is asked about.
struct UsualCost {
  double time_s = 0;
  double time_error_s = 0;  // Standard error.
  double energy_j = 0;
};
Result<UsualCost> UsualCostOfSteps(const JobLogs& logs, const std::set<protocol::RankId>& ranks,
                                   const StepRange& range);

// Steps of a plan in force, beside steps at the highest clocks.
struct SeenSteps {
  double time_s = 0;
  double energy_j = 0;
  double baseline_time_s = 0;
  double baseline_energy_j = 0;
  double time_error_s = 0;  // Standard error of the difference of the two times.
  double saving() const { return 1 - energy_j / baseline_energy_j; }
  double slowdown() const { return time_s / baseline_time_s - 1; }
};
SeenSteps SeenStepsOf(const UsualCost& planned, const UsualCost& baseline);

// Whether whole steps are as a plan of that slowdown (a fraction) should be. Fails (kUnreachable)
// with both figures if they are slower than that by more than 1 % and three standard errors, or
// cost more than 1 % more than the baseline's.
Result<void> CheckSeen(const SeenSteps& seen, double promised_slowdown);

}  // namespace perseus::tuner
