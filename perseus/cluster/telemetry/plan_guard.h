// Withdraws a plan if it costs throughput: "first, do no harm".
//
// If a job is slower than its plan promises, the plan may still be good. The profile may be
// optimistic, so the job may be just as slow without a plan. So the guard compares the steps with
// the plan and the steps without a plan. If the median step with the plan is slower than promised
// by more than the limit of the job, the guard requests a trial. In the trial, the ranks run at the
// default clocks. With
//
//   r_plan    = measured / promised step time with the plan
//   r_default = measured / promised step time at the default clocks
//   harm      = r_plan - r_default (1 + limit)
//
// the plan costs throughput if harm > 0. Effects that both ratios contain, such as an optimistic
// profile or slow storage, cancel out. If the plan costs throughput, it stays withdrawn. Otherwise
// it becomes active again.
//
//            slower than promised          r_default is known
//   (none) ───────────────────────▶ trial ─────────────────┬──▶ withdrawn
//                                     ▲                     └──▶ cleared
//                                     └──── an hour later, and slower than in the last trial ┘
//
// A straggler also slows steps. As long as the detector does not know the straggler, the promise
// does not include the slowdown. So if stragglers are detected, r_plan leaves out the time in which
// all pipelines wait for one pipeline. r_default includes this time, so an error favors the plan.
//
// Steps of a job differ. So each median has a standard error, from the spread of the steps. A trial
// begins only if the excess is more than two standard errors. The trial ends after kGuardSteps
// steps if harm differs from 0 by more than two standard errors. Otherwise it ends after
// kMostGuardSteps steps. At the end of the trial, the plan is withdrawn if harm is more than one
// standard error.
//
// A new profile or a new target ends every state, because the job gets other plans. Setting the
// same target again also ends the state.
//
// These functions have no side effects.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "perseus/cluster/store/records.h"

namespace perseus::telemetry {

// The steps that followed one assignment.
struct StepTimes {
  std::int64_t version = 0;
  bool has_plans = false;  // false: the assignment has the default clocks.
  int steps = 0;
  double ratio = 1;  // The median of measured / promised step time.
  double error = 0;  // The standard error of the median.
};
// Computes the median and its standard error. Requires `promised_s` > 0.
StepTimes SummarizeTimes(std::vector<double> times_s, double promised_s);

inline constexpr int kGuardSteps = 8;
inline constexpr int kMostGuardSteps = 14;  // JobWatch keeps 16 steps, and leaves out two.
// After a plan was cleared, no new trial begins within this time.
inline constexpr Milliseconds kRetryGuardAfter = 3'600'000;

// Returns the next state, if it changes. `guard` is the stored state, if it belongs to the job's
// profile and target. `limit` is the limit of the job, as a fraction.
std::optional<store::GuardRecord> NextGuard(const std::optional<store::GuardRecord>& guard,
                                            const StepTimes& times, double limit, Milliseconds now);

}  // namespace perseus::telemetry
