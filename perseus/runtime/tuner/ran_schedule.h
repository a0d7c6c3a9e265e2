// The schedule that a job really ran, from its rank logs. It needs no description of the job: the
// logs have the ranks, the pipeline stages of their chunks, and the order of the instructions.
//
// A job runs other orders, too: an evaluation, the last batch of an epoch, or fewer microbatches
// while the batch size grows. So an order counts if all ranks ran it in several consecutive steps.
// The schedule is the newest order that counts.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "perseus/base/clock.h"
#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"
#include "perseus/runtime/tuner/job_logs.h"

namespace perseus::tuner {

// Checks after one or two steps that a job runs the schedule of its job file. Otherwise, ranks that
// do not follow the plan would be noticed only after the whole budget is spent.

// An instruction of a schedule or of a step that ran.
struct MatchedInstruction {
  InstructionKind kind = InstructionKind::kForward;
  int microbatch = 0;
  int chunk = 0;
  friend auto operator<=>(const MatchedInstruction&, const MatchedInstruction&) = default;
};

// The computations of the step, in the order in which they began.
std::vector<MatchedInstruction> ComputationsOf(const protocol::RanStep& step);

// Fails (kInput) if the rank's computations in `step` differ from the schedule's, or have another
// order. The message has the difference and a remedy. Requires that the schedule has the rank.
Result<void> CheckRanSchedule(const schedule::Schedule& schedule, const protocol::RankId& name,
                              const protocol::RanStep& step);

// Checks the steps of the rank that are kept. One correct step is sufficient, because other steps
// may be an evaluation or a last batch.
Result<void> CheckRunsSchedule(const schedule::Schedule& schedule, const protocol::RankId& name,
                               const LoggedRank& rank);

struct RanSchedule {
  // Its name is that of the generated schedule with the same order ("1f1b"), or "recorded".
  schedule::Schedule schedule;
  int pipelines = 1;
  int gpus_per_stage = 1;
  std::int64_t first = 0;  // The newest consecutive steps with this order.
  std::int64_t last = 0;
  int steps = 0;  // All steps of the logs with this order.
  // The other steps of the logs, by what they are: "an evaluation", "with 3 microbatches".
  std::map<std::string, std::vector<std::int64_t>> others;
};

// The number of consecutive steps in which all ranks have to run an order.
inline constexpr int kStepsOfSchedule = 3;

// The schedule of these ranks. Fails (kInput) if a rank of a pipeline has no steps, if pipelines or
// GPUs of a stage run different orders, or if what ran is not one iteration of a pipeline. The
// message has the cause and a remedy. `where` is the job directory.
Result<RanSchedule> FindRanSchedule(const JobLogs& logs, const std::set<protocol::RankId>& ranks,
                                    const std::string& where);

// The ranks of all logs.
std::set<protocol::RankId> LoggedRanks(const JobLogs& logs);

struct ScheduleWait {
  // The time in which no new rank may appear, because logs of ranks appear at different times.
  Nanoseconds settling = 2 * kSecond;
  Nanoseconds timeout = 60 * kSecond;  // How long the ranks may record no step.
  ShouldEnd should_end = [] { return false; };
};

// Waits until the ranks of a running job have run an order in several steps. Fails as
// FindRanSchedule() does, or (kSystem) if no rank records a step for `timeout`.
Result<RanSchedule> AwaitRanSchedule(const std::filesystem::path& job_directory,
                                     const ScheduleWait& wait, Clock& clock);

// "1f1b: stages 4, pp_ranks 4, microbatches 8, …", in which steps it ran, and a line for each kind
// of other steps.
std::string Describe(const RanSchedule& ran);

}  // namespace perseus::tuner
