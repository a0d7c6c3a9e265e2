// Which plan each pipeline of an emulated job runs: the base plan, as new plans and power caps
// determine it, or the plan of a pipeline that waits for a straggler. emulation.h has the rules.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/simulation/emulator/pipeline_runs.h"

namespace perseus::emulator {

class PlanChoice {
 public:
  // Keeps references to all parameters, and adds its plans to `runs`.
  PlanChoice(const plan::Planner& planner, const EmulationSpec& spec, const JobClock& clock,
             PipelineRuns& runs);

  // The plan of each pipeline in an iteration that has begun. Fails as planning does.
  Result<std::vector<int>> PlansIn(int iteration);

  // By index in the spec: which were in force in an iteration for which PlansIn was called.
  const std::vector<bool>& changes_in_force() const { return change_in_force_; }
  const std::vector<bool>& caps_in_force() const { return cap_in_force_; }

 private:
  struct Base {
    int plan = 0;
    double most_w = 0;  // The most mean power of a pipeline.
  };

  Result<Base> BaseIn(int iteration);
  Result<Nanoseconds> SlowestIn(int iteration, int plan);
  Result<int> PlanBeside(Nanoseconds straggler, int iteration, int pipeline, const Base& base);
  double EnergyUntil(Nanoseconds time, int state) const;
  Result<int> PlanFollowing(Nanoseconds time);
  Result<double> PowerOf(int plan);

  const plan::Planner& planner_;
  const EmulationSpec& spec_;
  const JobClock& clock_;
  PipelineRuns& runs_;
  int plan_ = 0;                          // The number of the spec's plan.
  std::vector<int> plan_of_change_;       // By index in the spec.
  std::vector<int> plan_of_cap_;          // By index in the spec.
  std::map<Nanoseconds, int> following_;  // By the straggler's time.
  std::vector<bool> change_in_force_;
  std::vector<bool> cap_in_force_;
};

}  // namespace perseus::emulator
