// Reads the rank logs of all ranks of a job while they train.
//
// A job directory may contain logs of an earlier run. Logs of ranks may appear later. A rank is
// alive if its log has grown since JobLogs opened the log.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/runtime/profiler/energy_curve.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::tuner {

struct LoggedRank {
  protocol::RankHeader header;
  std::deque<protocol::RanStep> steps;  // Ascending, without the steps that were forgotten.
  profiler::EnergyCurve energy;         // The time is CLOCK_MONOTONIC of the rank's host.
  std::vector<std::string> remarks;
  bool is_alive = false;
  bool has_restarted = false;  // Whether another process wrote a header while the rank was alive.

  // Returns the step, or null if the step was not recorded.
  const protocol::RanStep* Find(std::int64_t step) const;
  std::int64_t last_step() const { return steps.empty() ? -1 : steps.back().step; }
};

// Called periodically during a wait. The wait ends if it returns true.
using ShouldEnd = std::function<bool()>;

class JobLogs {
 public:
  // Opens the logs. Fails (kInput) if `job_directory` is not a directory.
  //  - kIsRunning: existing logs count as logs of an earlier run until they grow. Logs need not
  //    exist yet. Only the last `steps_kept` of the steps already in a log are kept.
  //  - kIsOver: all steps are kept. Fails (kInput) if there are no logs.
  enum class Job { kIsRunning, kIsOver };
  static Result<JobLogs> Open(const std::filesystem::path& job_directory, Job job,
                              std::int64_t steps_kept = 1);

  // Reads the complete new lines. Fails if a line of a log is invalid. If the rank of the log is
  // not alive, an invalid line is skipped and becomes a remark.
  Result<void> ReadNew();
  const std::map<protocol::RankId, LoggedRank>& ranks() const { return ranks_; }
  // The ranks that are alive and have steps.
  std::set<protocol::RankId> Alive() const;
  // The last step that all of these ranks have ended. -1: none.
  std::int64_t LastCommonStep(const std::set<protocol::RankId>& ranks) const;
  // The last step that any of these ranks has ended. -1: none.
  std::int64_t LastStep(const std::set<protocol::RankId>& ranks) const;
  // The mean time from step to step of the kept steps. nullopt if there are fewer than two steps.
  std::optional<double> StepTime(const std::set<protocol::RankId>& ranks) const;
  // Drops the steps before `step`, except the last one of them.
  void ForgetBefore(std::int64_t step);

  // Waits until all of `expected` are alive, and returns all ranks that are alive at that time.
  // Fails (kSystem) after `timeout`. The message names the missing ranks and what is known about
  // them. If a rank is far behind the others (a single rank that was replaced), the message names
  // this rank instead.
  Result<std::set<protocol::RankId>> AwaitRanks(const std::set<protocol::RankId>& expected,
                                                Nanoseconds timeout, const ShouldEnd& should_end,
                                                Clock& clock);
  // Waits until all of `ranks` have ended `step`. Fails (kSystem) if a rank ends no step for
  // `timeout`, or if a rank restarts.
  Result<void> AwaitStep(const std::set<protocol::RankId>& ranks, std::int64_t step,
                         Nanoseconds timeout, const ShouldEnd& should_end, Clock& clock);

 private:
  JobLogs(std::filesystem::path directory, Job job) : directory_(std::move(directory)), job_(job) {}
  Result<void> FindLogs();
  // Reads a part of the new lines. Returns whether there was a new line.
  Result<bool> ReadSome();
  void Take(const protocol::RankRecord& record, LoggedRank& rank) const;
  std::string WhatIsKnown(const protocol::RankId& name) const;
  std::string FarBehind(const std::set<protocol::RankId>& ranks) const;
  void Forget(const protocol::RankId& name, std::int64_t before);

  std::filesystem::path directory_;
  Job job_;
  bool has_looked_ = false;
  std::map<protocol::RankId, LoggedRank> ranks_;
  std::map<protocol::RankId, protocol::RankLogReader> readers_;
};

// The names of all ranks of a job: {dp0-pp0-tp0, …}.
std::set<protocol::RankId> RanksOf(int pipelines, int ranks, int gpus_per_stage);

// The error of a function that stops because `should_end` returned true.
Error EndedByRequest();

// Steps that do not count because something other than the power limit reduced a clock. Also the
// causes.

struct Disturbance {
  int steps = 0;     // The number of steps that do not count.
  int of_steps = 0;  // The number of all recorded steps.
  // The causes, as `limited_by` of the rank log names them. Empty if no step names one.
  std::set<std::string> causes;

  void Add(const protocol::RanStep& step);
  void Add(const Disturbance& other);
};

// The disturbance of the steps from `first` to `last`.
Disturbance DisturbanceOf(const LoggedRank& rank, std::int64_t first, std::int64_t last);

// Returns a text such as "heat held its clock down (cool the GPU)". Requires causes.
std::string Describe(const Disturbance& disturbance);

}  // namespace perseus::tuner
