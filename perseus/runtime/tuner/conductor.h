// Runs a job through stretches of steps: writes assignments far enough ahead that all ranks have
// read them, waits until the steps ran, and checks that every rank followed the assignment.
//
// Not thread safe.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/runtime/protocol/assignment_writer.h"
#include "perseus/runtime/tuner/job_logs.h"
#include "perseus/runtime/tuner/step_costs.h"

namespace perseus::tuner {

struct ConductorOptions {
  double assignment_delay_s = protocol::kAssignmentDelaySeconds;  // Until every rank has read them.
  Nanoseconds timeout = 60'000'000'000;                           // With a rank that is silent.
  ShouldEnd should_end = [] { return false; };
};

// Fails (kInput), with the remedy, for a rank that may not set the clock of its GPU.
Result<void> CheckMaySetClocks(const protocol::RankHeader& header);

class Conductor {
 public:
  Conductor(const ConductorOptions& options, JobLogs logs, protocol::AssignmentWriter writer,
            Clock& clock)
      : options_(options), logs_(std::move(logs)), writer_(std::move(writer)), clock_(clock) {}

  // Waits for these ranks, and includes others that are there by then. Fails (kSystem) as
  // JobLogs::AwaitRanks(). Call it before all other functions.
  Result<void> Meet(const std::set<protocol::RankId>& expected);
  // Waits until all ranks have ended this many further steps. Their time decides how far ahead
  // assignments begin.
  Result<void> Watch(int steps);

  const std::set<protocol::RankId>& ranks() const { return ranks_; }
  const LoggedRank& log_of(const protocol::RankId& name) const { return logs_.ranks().at(name); }
  const JobLogs& logs() const { return logs_; }
  void ForgetBefore(std::int64_t step) { logs_.ForgetBefore(step); }

  // Writes the plan file of the next assignment; what they say of it.
  Result<std::string> AddPlan(const std::string& text) const;
  // Under assignment that end by themselves, `spare_steps` later: steps that ran so throughout, and
  // the one before them, in which clocks landed. Fails if a rank did not record most of them, read
  // the assignment late, or ran another order than the plan's.
  struct Stretch {
    std::int64_t landing = 0;
    std::int64_t last = 0;
    std::int64_t version = 0;
    std::int64_t first() const { return landing + 1; }
    int steps() const { return static_cast<int>(last - landing + 1); }
    // For what whole steps cost; the begin of the last is the end of what is counted.
    StepRange counted() const { return {first(), last, version}; }
  };
  Result<Stretch> RunUnder(protocol::Assignment assignment, int steps, int spare_steps);
  // For good, and from step 0 on, at which a job that is started again begins. Once all follow
  // them: their version.
  Result<std::int64_t> LeaveUnder(protocol::Assignment assignment);
  // Puts the previous assignment back into force, if another one is.
  Result<void> Restore();

  // How many steps ahead an assignment has to begin.
  std::int64_t Ahead();

 private:
  Result<void> AwaitStep(std::int64_t step) {
    return logs_.AwaitStep(ranks_, step, options_.timeout, options_.should_end, clock_);
  }
  Result<void> CheckFollowed(std::int64_t from, std::int64_t to, std::int64_t version) const;

  ConductorOptions options_;
  JobLogs logs_;
  protocol::AssignmentWriter writer_;
  Clock& clock_;
  std::set<protocol::RankId> ranks_;
  double fastest_s_ = 0;  // Step that was seen to be usual; 0: none.
};

}  // namespace perseus::tuner
