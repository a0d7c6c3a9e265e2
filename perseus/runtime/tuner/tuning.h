// The coordinator behind `tune`: measures the time and energy of a job's instructions at different
// clocks, makes a plan, and puts the plan into force, while the job trains.
//
//   rank logs -> Measurements -> ChooseRound -> assignment with clocks -> ranks ...        a round
//                             -> PlanningProfile -> planner -> plans/N.json, assignment
//   rank logs -> Measurements -> the same again, with what the clocks of the plan showed
//
// It keeps its whole state in JOBDIR/tuner.json. So after it was ended, or died, the next one
// continues where it was.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/runtime/profiler/sweep.h"
#include "perseus/runtime/protocol/assignment_writer.h"
#include "perseus/runtime/tuner/job_logs.h"
#include "perseus/runtime/tuner/step_costs.h"

namespace perseus::tuner {

struct TuningOptions {
  std::filesystem::path job_directory;
  // Its schedule, its model, its pipelines and its switching latency; `profile` is the path that
  // the plan is to name. A blocking power of 0 is measured.
  plan_file::PlannedJob job;
  plan::Target target;
  profiler::SweepBudget budget;
  double assignment_delay_s = protocol::kAssignmentDelaySeconds;  // Until every rank has read them.
  int steps_followed =
      12;  // Of each of two plans, before the last one is left in force; 2 or more.
  bool leaves_plan_in_force = true;
  Nanoseconds timeout = 60'000'000'000;
  ShouldEnd should_end = [] { return false; };
  std::function<void(std::string_view)> say;  // What it does, a line at a time; may be empty.
};

struct TuningResult {
  profile::Profile profile;  // What was measured, with confidence.
  // What the plan goes by: all clocks that could be asked for, those that nobody measured by the
  // fitted model (without samples), energies as the plan has them.
  profile::Profile planned;
  // What other plans of this job are best made from, by a server for one: as `planned`, but of all
  // measurements, with margins in its times, and with energies such that plans promise what was
  // seen of this one.
  profile::Profile options;
  // Computed without the margins that it was made with. If it was left in force, by measurements
  // made while it was followed, which it was not chosen by, and with energies scaled so that whole
  // steps cost what the counters say; otherwise by those that it was made from, which promise about
  // a point too much (measured: 0.9).
  plan_file::PlanFile plan;
  double blocking_power_w = 0;
  profiler::SweepSpent spent;
  double slowdown_spent = 0;      // Mean over the steps spent, as a fraction.
  std::optional<SeenSteps> seen;  // Of the plan that is in force.
  int rounds = 0;
  int frequencies = 0;       // Most that were measured of any group, before a plan was followed.
  std::string reason;        // Why it stopped measuring.
  std::int64_t version = 0;  // Of the assignment with the plan; 0: left nothing.
};

// Takes the steps of the budget, the steps in which plans are followed, and the steps until ranks
// have read an assignment. Fails (kSystem) if ranks are missing or the job ends; (kInput) if ranks
// may not set clocks, run another schedule, or record no energy; (kUnreachable) if the plan is
// slower than it may be, or saves nothing. Then, and if `should_end` is true, the previous
// assignment is in force again, and the measurements stay in JOBDIR/tuner.json.
Result<TuningResult> Tune(const TuningOptions& options, Clock& clock);

}  // namespace perseus::tuner
