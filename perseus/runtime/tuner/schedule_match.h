// Checks after one or two steps that a job runs the schedule of its job file. Otherwise, ranks that
// do not follow the plan would be noticed only after the whole budget is spent.
#pragma once

#include <compare>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"
#include "perseus/runtime/tuner/job_logs.h"

namespace perseus::tuner {

// An instruction of a schedule or of a step that ran.
struct MatchedInstruction {
  InstructionKind kind = InstructionKind::kForward;
  int microbatch = 0;
  int chunk = 0;
  friend auto operator<=>(const MatchedInstruction&, const MatchedInstruction&) = default;
};

// The computations of the step, in the order in which they began.
std::vector<MatchedInstruction> ComputationsOf(const protocol::RanStep& step);

// Fails (kInput) if the rank's computations in that step differ from the schedule's, or have
// another order. The message has the difference and a remedy. Requires that the schedule has the
// rank.
Result<void> CheckRanSchedule(const schedule::Schedule& schedule, const protocol::RankId& name,
                              const protocol::RanStep& step);

// Checks the steps of the rank that are kept. One correct step is sufficient, because other steps
// may be an evaluation or a last batch.
Result<void> CheckRunsSchedule(const schedule::Schedule& schedule, const protocol::RankId& name,
                               const LoggedRank& rank);

}  // namespace perseus::tuner
