// The planner in one call: a profile, a schedule and a target in, a plan with its certificate out.
//
//   const auto plan = perseus::PlanIteration({.profile = "profile.csv",
//                                             .schedule = "1f1b",
//                                             .microbatches = 96,
//                                             .gpus_per_stage = 8,
//                                             .blocking_power_w = 83.64},
//                                            perseus::NoSlowdown());
//   if (!plan) return Report(plan.error().Message());
//   // plan->time_s, plan->energy_j, plan->lower_bound_j, plan->gap()
//
// The plan is the same as the plan of `perseus plan` for the same job and target, bit for bit:
// planning/recipe makes both. So it has few clock changes, unless `changes` of the job requests
// otherwise.
//
// docs/algorithm.md explains what the plan means. This function leaves out several targets of one
// job, and the frontier itself. For these, use the modules below this one:
//   1. perseus/planning/job/job_setup.h   a job with everything that a job file can contain
//   2. perseus/planning/recipe/recipe.h   the plans of all targets, and the frontier
//   3. perseus/planning/plan/planner.h    the frontier, and plans without a limit on clock changes
//
// Thread safety: the functions share no state, so any thread may call them.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "perseus/base/result.h"
#include "perseus/planning/job/job_setup.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/planning/recipe/recipe.h"

namespace perseus {

// The targets of a plan.
plan::Target NoSlowdown();              // The iteration time at maximum frequency.
plan::Target Slowdown(double percent);  // At most `percent` % longer than that.
plan::Target Deadline(double seconds);  // At most `seconds`.

// The plan of least energy within the deadline, and the proof of how good it is.
struct IterationPlan {
  double time_s = 0;             // At most deadline_s.
  double energy_j = 0;           // All GPUs of one pipeline, with waiting included.
  double deadline_s = 0;         // The time that the target allows.
  double baseline_time_s = 0;    // With every instruction at maximum frequency.
  double baseline_energy_j = 0;  // The same.

  // The certificate: no plan for this profile within the deadline has less energy.
  double lower_bound_j = 0;
  // How far energy_j may be above the best possible energy, as a fraction of the bound.
  double gap() const;
  // The energy saved against maximum frequency, as a fraction.
  double saving() const { return 1 - energy_j / baseline_energy_j; }

  // The savings of limits of clock changes, if the limit is picked or the job asks for them.
  std::optional<recipe::SwitchTradeoff> switch_tradeoff;

  // The option of every instruction: its frequency, start, duration and energy.
  plan_file::PlanFile instructions;
  // Writes the plan JSON that `perseus evaluate` checks and that training jobs follow.
  Result<void> Save(const std::string& path) const;
};

struct PlanningOptions {
  int effort = plan::kUsualEffort;
  std::optional<noise::Noise> noise = {};  // nullopt: from the profile. 0: no noise.
  std::stop_token finish = {};             // A request ends the search with the best plan so far.
  std::stop_token stop = {};               // A request ends the search with an error.
};

// Reads the files that the job names, and plans. Without a target, plans no slowdown (of the
// reference, if the schedule is searched for). Errors are one line with the cause, the place and
// the remedy:
//   kInput        the profile or the job is wrong
//   kSystem       the profile cannot be read
//   kUnreachable  no plan meets the target; the message says what can be met
Result<IterationPlan> PlanIteration(const job::JobSettings& job,
                                    const std::optional<plan::Target>& target = {},
                                    const PlanningOptions& options = {});

}  // namespace perseus
