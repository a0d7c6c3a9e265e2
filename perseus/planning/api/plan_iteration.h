// The planner in one call: a profile, a schedule and a target in, a plan with its certificate out.
//
//   const auto plan = perseus::PlanIteration({.profile = "profile.csv",
//                                             .schedule = "1f1b",
//                                             .microbatches = 96,
//                                             .blocking_power_w = 83.64,
//                                             .gpus_per_stage = 8},
//                                            perseus::NoSlowdown());
//   if (!plan) return Report(plan.error().message);
//   // plan->time_s, plan->energy_j, plan->lower_bound_j, plan->gap()
//
// The plan has a clock for each instruction. By default, `perseus plan` limits clock changes, so
// its plan saves a little less.
//
// What the plan means: docs/algorithm.md. What it leaves out: limits of clock changes, several
// targets of one job, fixed instructions (load, p2p, all-reduce, optimizer), switch latency,
// schedule files, general graphs, and the frontier itself. For these, use the modules below this
// one:
//   1. perseus/planning/job/job_setup.h   a job with all that a job file can say
//   2. perseus/planning/plan/planner.h    the frontier, and many plans of one job
//   3. perseus/planning/plan/target.h     all targets, such as a power cap or an energy budget
//
// Thread safety: the functions share no state, so any thread may call them.
#pragma once

#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/plan_file/plan_file.h"

namespace perseus {

// One iteration of one pipeline.
struct IterationSpec {
  std::string profile;  // The path of a profile CSV (docs/formats.md).
  // Such as "1f1b": one of schedule::ScheduleNames(). Or "auto": the one whose plan needs the least
  // energy, which is searched for.
  std::string schedule;
  int pp_ranks = 0;      // Positions along the pipeline; 0: as many as the profile has.
  int microbatches = 0;  // Of one iteration of one pipeline; at least 1.
  int chunks = 1;        // Model chunks on each pp_rank; above 1 if interleaved.
  // Of "auto": the microbatches that each pp_rank may hold, one number for all or one for each.
  // Empty: as many as with 1F1B.
  std::vector<int> max_in_flight = {};
  double blocking_power_w = -1;  // What one GPU draws while it waits. Required; 0 is allowed.
  int gpus_per_stage = 1;        // GPUs that share the work of a pp_rank (tensor parallel).
};

// What the plan has to meet.
plan::Target NoSlowdown();              // The iteration time at maximum frequency.
plan::Target Slowdown(double percent);  // At most `percent` % longer than that.
plan::Target Deadline(double seconds);  // At most `seconds`.

// Least energy within the deadline, and the proof of how good the plan is.
struct IterationPlan {
  double time_s = 0;             // At most deadline_s.
  double energy_j = 0;           // Of all GPUs of one pipeline, with waiting included.
  double deadline_s = 0;         // The time that the target allows.
  double baseline_time_s = 0;    // With every instruction at maximum frequency.
  double baseline_energy_j = 0;  // The same.

  // The certificate: no plan for this profile within the deadline has less energy.
  double lower_bound_j = 0;
  // How far energy_j may be above the best possible energy, as a fraction of the bound.
  double gap() const;
  // The energy saved against maximum frequency, as a fraction.
  double saving() const { return 1 - energy_j / baseline_energy_j; }

  // The option of every instruction: its frequency, start, duration and energy.
  plan_file::PlanFile instructions;
  // Writes the plan JSON that `perseus evaluate` checks and that training jobs follow.
  Result<void> Save(const std::string& path) const;
};

// Reads the profile and plans. Errors are one line with the cause, the place and the remedy:
//   kInput        the profile or the spec is wrong
//   kSystem       the profile cannot be read
//   kUnreachable  no plan meets the deadline; the message says the least possible time
Result<IterationPlan> PlanIteration(const IterationSpec& spec, const plan::Target& target);

}  // namespace perseus
