// Runs a job through stretches of steps. A stretch is the steps with one assignment. The conductor
// writes assignments far enough ahead that all ranks have read them. Then it waits until the steps
// have run, and checks that every rank followed the assignment.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/runtime/tuner/job_logs.h"
#include "perseus/runtime/tuner/step_costs.h"

namespace perseus::tuner {

struct ConductorOptions {
  // The time until every rank has read an assignment.
  double assignment_delay_s = protocol::kAssignmentDelaySeconds;
  // The longest time in which a rank may record no step.
  Nanoseconds timeout = 60'000'000'000;
  ShouldEnd should_end = [] { return false; };
};

// Fails (kInput), with the remedy, if the rank may not set the clock of its GPU.
Result<void> CheckMaySetClocks(const protocol::RankHeader& header);

class Conductor {
 public:
  Conductor(const ConductorOptions& options, JobLogs logs, protocol::AssignmentWriter writer,
            Clock& clock)
      : options_(options), logs_(std::move(logs)), writer_(std::move(writer)), clock_(clock) {}

  // Waits for these ranks, and includes other ranks that are alive at the end of the wait. Fails
  // (kSystem) in the same cases as JobLogs::AwaitRanks(). Call it before all other functions.
  Result<void> AwaitRanks(const std::set<protocol::RankId>& expected);
  // Waits until all ranks have ended this many more steps. The time of these steps determines how
  // far ahead assignments begin.
  Result<void> AwaitSteps(int steps);

  const std::set<protocol::RankId>& ranks() const { return ranks_; }
  const LoggedRank& log_of(const protocol::RankId& name) const { return logs_.ranks().at(name); }
  const JobLogs& logs() const { return logs_; }
  void ForgetBefore(std::int64_t step) { logs_.ForgetBefore(step); }

  // Writes a plan file for the next assignment: that of one pipeline, or else of all pipelines.
  // Returns the path for the assignment.
  Result<std::string> AddPlan(const std::string& text, std::optional<int> dp_rank = {}) const;
  // The steps that ran with one assignment. The clocks changed in the first of them.
  struct Stretch {
    std::int64_t landing = 0;  // The step during which the clocks changed.
    std::int64_t last = 0;
    std::int64_t version = 0;
    std::int64_t first() const { return landing + 1; }
    int steps() const { return static_cast<int>(last - landing + 1); }
    // The steps that CostOfSteps counts: up to the beginning of the last step.
    StepRange counted() const { return {first(), last, version}; }
  };
  // Runs this many steps with a temporary assignment. The assignment ends by itself `spare_steps`
  // after these steps. Fails if a rank did not record most of the steps, read the assignment late,
  // or ran another order than the plan.
  Result<Stretch> RunWith(protocol::Assignment assignment, int steps, int spare_steps);
  // Makes the assignment the lasting assignment, from step 0 on. So the assignment also applies to
  // a job that restarts. Waits until all ranks follow it.
  struct LeftInForce {
    std::int64_t version = 0;
    std::int64_t step = 0;  // The first step in which all ranks followed the assignment.
  };
  Result<LeftInForce> LeaveInForce(protocol::Assignment assignment);
  // Activates the previous lasting assignment again, if another assignment is active.
  Result<void> Restore();

  // Returns how many steps ahead an assignment has to begin.
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
  double fastest_s_ = 0;  // The shortest mean step time so far. 0: none.
};

}  // namespace perseus::tuner
