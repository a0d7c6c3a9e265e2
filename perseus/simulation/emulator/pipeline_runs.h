// The different iterations of a job's pipelines, each computed once, and which of them a pipeline
// has in an iteration if it runs a plan.
//
// Two iterations are different if their plans or their disturbances differ. If an event that is
// given by time begins or ends within an iteration, that moment counts too. Otherwise, an event by
// time is like any other event, so iterations without such a moment are equal.
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

// What an emulation needs to know of a pipeline's iteration, until its own end.
struct RunSummary {
  struct Rank {
    Nanoseconds busy = 0;
    double energy_j = 0;  // Of its instructions.
    int switches = 0;
  };
  Nanoseconds time = 0;
  double energy_j = 0;
  int switches = 0;
  std::vector<Rank> ranks;
  std::vector<bool> felt;  // By presence.

  // As if it were all that happens: no straggler to wait for.
  double average_power_w() const { return energy_j / ToSeconds(time); }
};

RunSummary Summarise(const schedule::InstructionGraph& graph, const Execution& execution);

class PipelineRuns {
 public:
  struct State {
    int plan = 0;
    std::vector<Presence> presences;  // By index of the disturbance.

    // NOLINTNEXTLINE(modernize-use-nullptr): there is no pointer in it.
    auto operator<=>(const State&) const = default;
  };

  // Keeps references to all three.
  PipelineRuns(const plan::Planner& planner, const std::vector<Disturbance>& disturbances,
               int pipelines, const JobClock& clock);

  int AddPlan(std::vector<int> options);  // Its number, from 0: the same for the same options.
  const std::vector<int>& options(int plan) const {
    return *plans_[static_cast<std::size_t>(plan)];
  }

  // The number of the state that the pipeline is in, in that iteration, if it runs that plan.
  Result<int> StateIn(int iteration, int pipeline, int plan);
  Result<int> StateUndisturbed(int plan) { return NumberOf({plan, {}}); }

  // Of the numbers above. References stay valid.
  const State& state(int number) const { return *states_[static_cast<std::size_t>(number)]; }
  const RunSummary& run(int number) const { return runs_[static_cast<std::size_t>(number)]; }

  // Computes it again, without keeping it.
  Result<Execution> Execute(const State& state, const plan::Variation& chance = {}) const {
    return executor_.Execute(options(state.plan), state.presences, chance);
  }

  // What disturbs a pipeline in that iteration. Edges at `horizon` after its beginning or later
  // are taken to be beyond its end.
  std::vector<Presence> PresencesIn(int iteration, int pipeline, Nanoseconds horizon) const;

  bool IsDisturbed(int pipeline) const {
    return !disturbances_of_[static_cast<std::size_t>(pipeline)].empty();
  }
  const Executor& executor() const { return executor_; }
  std::int64_t executions() const { return static_cast<std::int64_t>(runs_.size()); }

  // The longest run of the states that were told since this was last called.
  Nanoseconds TakeReach() { return std::exchange(reach_, 0); }

 private:
  Result<int> NumberOf(State state);

  const plan::Planner& planner_;
  const std::vector<Disturbance>& disturbances_;
  const JobClock& clock_;
  Executor executor_;
  std::vector<std::vector<int>> disturbances_of_;  // [pipeline]
  std::map<std::vector<int>, int> plan_numbers_;
  std::vector<const std::vector<int>*> plans_;  // By number.
  std::map<State, int> numbers_;
  std::vector<const State*> states_;  // By number.
  std::deque<RunSummary> runs_;       // The same.
  Nanoseconds reach_ = 0;
};

}  // namespace perseus::emulator
