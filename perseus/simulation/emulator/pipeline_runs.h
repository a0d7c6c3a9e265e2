// The different iterations of a job's pipelines, each computed once, and which of them a pipeline
// has in a given iteration with a given plan.
//
// Two iterations are different if their plans or their disturbances differ. If an event that is
// given by time begins or ends within an iteration, that moment also makes a difference.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/simulation/emulator/execution.h"
#include "perseus/simulation/emulator/job_clock.h"

namespace perseus::emulator {

// What the emulation needs of a pipeline's iteration. It ends when the pipeline itself is done.
struct RunSummary {
  struct Rank {
    Nanoseconds busy = 0;
    double energy_j = 0;  // Of its instructions.
    int switches = 0;
  };
  Nanoseconds time = 0;
  double energy_j = 0;
  int switches = 0;
  std::vector<Rank> pp_ranks;
  std::vector<bool> noticed;  // By presence.

  // The mean power without a straggler to wait for.
  double average_power_w() const { return energy_j / ToSeconds(time); }
};

RunSummary Summarize(const schedule::InstructionGraph& graph, const Execution& execution);

class PipelineRuns {
 public:
  struct State {
    int plan = 0;
    std::vector<Presence> presences;  // Sorted by index of the disturbance.

    // NOLINTNEXTLINE(modernize-use-nullptr): there is no pointer in it.
    auto operator<=>(const State&) const = default;
  };

  // Keeps references to all three.
  PipelineRuns(const plan::Planner& planner, const std::vector<Disturbance>& disturbances,
               int pipelines, const JobClock& clock);

  // Returns the number of the plan, from 0. Equal options have the same number.
  int AddPlan(std::vector<int> options);
  const std::vector<int>& options(int plan) const {
    return *plans_[static_cast<std::size_t>(plan)];
  }

  // The number of the pipeline's state in that iteration if it runs that plan.
  Result<int> StateIn(int iteration, int pipeline, int plan);
  Result<int> StateUndisturbed(int plan) { return NumberOf({plan, {}}); }

  // The state and the run of such a number. References stay valid.
  const State& state(int number) const { return *states_[static_cast<std::size_t>(number)]; }
  const RunSummary& run(int number) const { return runs_[static_cast<std::size_t>(number)]; }

  // Computes the execution again, without keeping it.
  Result<Execution> Execute(const State& state, const plan::Variation& noise = {}) const {
    return executor_.Execute(options(state.plan), state.presences, noise);
  }

  // The disturbances of a pipeline in that iteration. An edge at `horizon` or later after the begin
  // of the iteration counts as after its end.
  std::vector<Presence> PresencesIn(int iteration, int pipeline, Nanoseconds horizon) const;

  bool IsDisturbed(int pipeline) const {
    return !disturbances_of_[static_cast<std::size_t>(pipeline)].empty();
  }
  const Executor& executor() const { return executor_; }
  std::int64_t executions() const { return static_cast<std::int64_t>(runs_.size()); }

  // The longest run of the states that were returned since the last call.
  Nanoseconds TakeReach() { return std::exchange(reach_, 0); }

 private:
  Result<int> NumberOf(State state);

  const plan::Planner& planner_;
  const std::vector<Disturbance>& disturbances_;
  const JobClock& clock_;
  Executor executor_;
  std::vector<std::vector<int>> disturbances_of_;  // By pipeline.
  std::map<std::vector<int>, int> plan_numbers_;
  std::vector<const std::vector<int>*> plans_;  // By number.
  std::map<State, int> numbers_;
  std::vector<const State*> states_;  // By number.
  std::deque<RunSummary> runs_;       // By number.
  Nanoseconds reach_ = 0;
};

}  // namespace perseus::emulator
