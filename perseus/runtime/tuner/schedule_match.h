// Checks that a job runs the schedule that its job file states, after one or two steps. Otherwise a
// plan that nobody follows would show it only after the whole budget is spent.
#pragma once

#include "perseus/base/result.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/runtime/protocol/rank_log.h"
#include "perseus/runtime/tuner/job_logs.h"

namespace perseus::tuner {

// Fails (kInput) if the rank's computations in that step are not the schedule's, or in another
// order: what differs, and what to do. Requires that the schedule has the rank.
Result<void> CheckRanSchedule(const schedule::Schedule& schedule, const protocol::RankId& name,
                              const protocol::RanStep& step);

// The same for all that is remembered of the rank. One step that is as it should be will do: others
// may be an evaluation, or a last batch.
Result<void> CheckRunsSchedule(const schedule::Schedule& schedule, const protocol::RankId& name,
                               const LoggedRank& rank);

}  // namespace perseus::tuner
