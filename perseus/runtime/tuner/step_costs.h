// Time and energy of whole steps, only from the logs and the energy counters. These values do not
// depend on the measurements of single instructions.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>

#include "perseus/base/result.h"
#include "perseus/runtime/tuner/job_logs.h"

namespace perseus::tuner {

// The steps [begin, end). All of them have to run with the assignment of this version.
struct StepRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t version = 0;
};

// The time from step to step, and the energy of all ranks for each step.
struct StepCost {
  double time_s = 0;
  double energy_j = 0;
  std::map<int, double> pipelines_j;  // The energy of each dp_rank.
};

// Returns the mean over the range. Fails (kInput) in three cases: a rank did not record one of the
// steps, or the step after the last one; a rank ran one of these steps with another version; a rank
// has no energy.
Result<StepCost> CostOfSteps(const JobLogs& logs, const std::set<protocol::RankId>& ranks,
                             const StepRange& range);

// Returns only the mean time. Fails in the same cases as CostOfSteps, but does not need an energy.
Result<double> TimeOfSteps(const JobLogs& logs, const std::set<protocol::RankId>& ranks,
                           const StepRange& range);

// The mean energy and the median time of the steps of a range. A checkpoint or a stalled thread in
// one step does not change the median. Requires begin < end.
struct UsualCost {
  double time_s = 0;
  double time_error_s = 0;  // The standard error.
  double energy_j = 0;
  // The standard error. With short steps, this value is too large: if a counter is read late,
  // energy moves from one step to the next.
  double energy_error_j = 0;
  std::map<int, double> pipelines_j;  // The energy of each dp_rank.
  int steps = 0;
  // The median time by which a rank begins its next step before another rank of its pipeline has
  // ended the current step. 0: steps do not overlap.
  double overlap_s = 0;
};
Result<UsualCost> UsualCostOfSteps(const JobLogs& logs, const std::set<protocol::RankId>& ranks,
                                   const StepRange& range);

// For jobs without pipelines. Returns the usual time of a step in which even the busiest rank runs
// no instruction: all ranks communicate, load data, or run the optimizer. `first` and `last` are
// steps. Returns 0 if they are not recorded.
Nanoseconds TimeWithoutWork(const JobLogs& logs, const std::set<protocol::RankId>& ranks,
                            std::int64_t first, std::int64_t last);

// The cost of steps with a plan, and of steps at the highest clocks for comparison.
struct SeenSteps {
  double time_s = 0;
  double energy_j = 0;
  double baseline_time_s = 0;
  double baseline_energy_j = 0;
  // The standard error of the difference of the two times.
  double time_error_s = 0;
  double saving_error = 0;
  int degrees_of_freedom = 0;              // The degrees of freedom of both errors.
  double overlap_s = 0;                    // The overlap of the steps at the highest clocks.
  std::map<int, double> pipelines_j = {};  // The energy of each dp_rank.
  std::map<int, double> baseline_pipelines_j = {};
  double saving() const { return 1 - energy_j / baseline_energy_j; }
  double slowdown() const { return time_s / baseline_time_s - 1; }
  // Whether the overlap of steps is certain and matters. The overlap is certain if it is larger
  // than the possible difference of the clocks of two hosts. It matters for a plan because a plan
  // assumes that all ranks of a pipeline begin a step together.
  bool StepsOverlap() const { return overlap_s > 0.01 * baseline_time_s; }
  // The same steps, if all pipelines needed the mean energy of these dp_ranks.
  SeenSteps OfPipelines(std::span<const int> dp_ranks) const;
};
SeenSteps SeenStepsOf(const UsualCost& planned, const UsualCost& baseline);

// The uncertainty of a promise. A promise comes from the measurements of single instructions. These
// measurements do not include the time that instructions wait because of noise. Whole steps include
// this time, but only a few of them ran. So the range covers the promise and the 95 % interval of
// whole steps. The range does not cover later changes, for example another program that starts to
// use the machine.
struct PromiseRange {
  double estimate = 0;
  double lower = 0;
  double upper = 0;
};
PromiseRange RangeOfSaving(double promised, const SeenSteps& seen);
PromiseRange RangeOfSlowdown(double promised, const SeenSteps& seen);

// Compares whole steps with the slowdown (a fraction) that a plan promised. Fails (kUnreachable),
// with both values, if the steps are slower than promised by more than 1 % and by more than three
// standard errors. Also fails (kUnreachable) if the steps need over 1 % more energy than the
// baseline.
Result<void> CheckSeen(const SeenSteps& seen, double promised_slowdown);

}  // namespace perseus::tuner
