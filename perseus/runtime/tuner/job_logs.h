// The rank logs of all ranks of a job, followed while they train.
//
// A job directory may hold logs of an earlier run, and logs of ranks may appear later. A log counts
// as alive once it has grown since it was opened here.
//
// Not thread safe.
#pragma once

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
#include "perseus/runtime/protocol/rank_log.h"

namespace perseus::tuner {

struct LoggedRank {
  protocol::RankHeader header;
  std::deque<protocol::RanStep> steps;  // Ascending; those not forgotten.
  profiler::EnergyCurve energy;         // Over CLOCK_MONOTONIC of its host.
  std::vector<std::string> remarks;
  bool is_alive = false;
  bool has_restarted = false;  // Since it was alive: its header came again, of another process.

  // Null where it was not recorded.
  const protocol::RanStep* Find(std::int64_t step) const;
  std::int64_t last_step() const { return steps.empty() ? -1 : steps.back().step; }
};

// What a caller that waits looks at now and then, and may break off by.
using ShouldEnd = std::function<bool()>;

class JobLogs {
 public:
  // Fails (kInput) if it is not a job's directory: no log is there. With `is_running`, the logs
  // that are there are taken for those of an earlier run until they grow, and none need be there
  // yet.
  enum class Job { kIsRunning, kIsOver };
  static Result<JobLogs> Open(const std::filesystem::path& job_directory, Job job);

  // Takes what came whole since. Fails for a log with a line that is wrong; where the rank is not
  // alive, the line is passed over, with a remark.
  Result<void> ReadNew();
  const std::map<protocol::RankId, LoggedRank>& ranks() const { return ranks_; }
  // Those that are alive.
  std::set<protocol::RankId> Alive() const;
  // The last step that all of them have ended; -1 for none.
  std::int64_t LastCommonStep(const std::set<protocol::RankId>& ranks) const;
  // The last that any has.
  std::int64_t LastStep(const std::set<protocol::RankId>& ranks) const;
  // Mean time from step to step of what is remembered; nothing with fewer than two steps.
  std::optional<double> StepTime(const std::set<protocol::RankId>& ranks) const;
  void ForgetBefore(std::int64_t step);

  // Waits until all of `expected` are alive. Fails (kSystem) after `timeout`, naming those that
  // are not and what is known of them, and those that are far behind the others (a rank that was
  // replaced alone). Those alive then, which may be more.
  Result<std::set<protocol::RankId>> AwaitRanks(const std::set<protocol::RankId>& expected,
                                                Nanoseconds timeout, const ShouldEnd& should_end,
                                                Clock& clock);
  // Waits until all of `ranks` have ended that step; kSystem as above if one stands still that
  // long.
  Result<void> AwaitStep(const std::set<protocol::RankId>& ranks, std::int64_t step,
                         Nanoseconds timeout, const ShouldEnd& should_end, Clock& clock);

 private:
  JobLogs(std::filesystem::path directory, Job job) : directory_(std::move(directory)), job_(job) {}
  Result<void> FindLogs();
  // At most a part of what came; whether anything did.
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

// {dp0-pp0-tp0, …}
std::set<protocol::RankId> RanksOf(int pipelines, int ranks, int gpus_per_stage);

// What a job that breaks off on request fails with.
Error EndedByRequest();

}  // namespace perseus::tuner
