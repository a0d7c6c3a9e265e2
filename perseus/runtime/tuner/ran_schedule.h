// The schedule that a job really ran, from its rank logs. No description of the job is needed: the
// logs have the ranks, the pipeline stages of their chunks, and the order of the instructions.
//
// A job also runs its instructions in other orders: in an evaluation, in the last batch of an
// epoch, or with fewer microbatches while the batch size grows. So an order counts if all ranks ran
// it in several consecutive steps. The schedule is the newest order that counts.
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

// CheckRanSchedule checks after one or two steps that a job runs the schedule of its job file.
// Without this check, the tuner would notice only after the whole budget is spent that ranks do not
// follow the plan.

// An instruction of a schedule or of a step that ran.
struct MatchedInstruction {
  InstructionKind kind = InstructionKind::kForward;
  int microbatch = 0;
  int chunk = 0;
  friend auto operator<=>(const MatchedInstruction&, const MatchedInstruction&) = default;
};

// The computations of the step, sorted by start time.
std::vector<MatchedInstruction> ComputationsOf(const protocol::RanStep& step);

// Whether the rank waited for others within a forward or a backward. Optimizers whose states are on
// several ranks (ZeRO-1) wait within their own step, when everything else is computed.
bool WaitsBeforeOptimizer(const protocol::RanStep& step);

// Fails (kInput) if the rank's computations in `step` differ from those of the schedule, or have
// another order. The message has the difference and a remedy. Requires that the schedule has the
// rank.
Result<void> CheckRanSchedule(const schedule::Schedule& schedule, const protocol::RankId& name,
                              const protocol::RanStep& step);

// Checks the kept steps of the rank. One correct step is sufficient, because other steps may be an
// evaluation or a last batch.
Result<void> CheckRunsSchedule(const schedule::Schedule& schedule, const protocol::RankId& name,
                               const LoggedRank& rank);

struct RanSchedule {
  // If a generated schedule has the same order, the name is that of the generated schedule
  // ("1f1b"). Otherwise, the name is "recorded".
  schedule::Schedule schedule;
  int pipelines = 1;
  int gpus_per_stage = 1;
  // The first and the last of the newest consecutive steps with this order.
  std::int64_t first = 0;
  std::int64_t last = 0;
  int steps = 0;  // The number of all steps of the logs with this order.
  // The other steps of the logs. Key: what the steps are, such as "an evaluation" or "with 3
  // microbatches".
  std::map<std::string, std::vector<std::int64_t>> others;
};

// The number of consecutive steps in which all ranks have to run an order.
inline constexpr int kStepsOfSchedule = 3;

// Returns the schedule of these ranks. Fails (kInput) in three cases: a rank of a pipeline has no
// steps; pipelines or GPUs of a stage run different orders; the steps are not iterations of a
// pipeline. The message has the cause and a remedy. `where` is the job directory.
Result<RanSchedule> FindRanSchedule(const JobLogs& logs, const std::set<protocol::RankId>& ranks,
                                    const std::string& where);

// The ranks of all logs.
std::set<protocol::RankId> LoggedRanks(const JobLogs& logs);

struct ScheduleWait {
  // How long no new rank may have appeared before the search begins, because logs of ranks appear
  // at different times.
  Nanoseconds settling = 2 * kSecond;
  // The longest time in which the ranks may record no step.
  Nanoseconds timeout = 60 * kSecond;
  ShouldEnd should_end = [] { return false; };
};

// Waits until the ranks of a running job have run an order in several steps. Fails in the same
// cases as FindRanSchedule(). Also fails (kSystem) if no rank records a step for `timeout`.
Result<RanSchedule> AwaitRanSchedule(const std::filesystem::path& job_directory,
                                     const ScheduleWait& wait, Clock& clock);

// Returns "1f1b: stages 4, pp_ranks 4, microbatches 8, …", the steps in which the schedule ran, and
// a line for each kind of other steps.
std::string Describe(const RanSchedule& ran);

}  // namespace perseus::tuner
