// The coordinator behind `tune`. While a job trains, it runs the ranks at different clocks and
// reads the steps that they record. It makes a plan from the time and energy of the instructions,
// and activates the plan. runtime/profiler evaluates the steps.
//
//   rank logs -> GpuMeasurements -> ChooseRound -> assignment with clocks -> ranks ...     a round
//                                -> PlanningProfile -> planner -> plans/N.json, assignment
//   rank logs -> GpuMeasurements -> the same again, with the measurements at the plan's clocks
//
// The coordinator keeps its whole state in JOBDIR/tuner.json. If it stops or dies, the next
// coordinator continues from this state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/planning/few_switches/change_rate.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/recipe/recipe.h"
#include "perseus/runtime/profiler/instruction_noise.h"
#include "perseus/runtime/profiler/sweep.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/runtime/tuner/edge_microbatches.h"
#include "perseus/runtime/tuner/job_logs.h"
#include "perseus/runtime/tuner/outlook.h"
#include "perseus/runtime/tuner/paced_plans.h"
#include "perseus/runtime/tuner/step_costs.h"
#include "perseus/runtime/tuner/tuned_plan.h"

namespace perseus::tuner {

struct TuningOptions {
  std::filesystem::path job_directory;
  // The job's schedule, model, pipelines and switch latency. The plan uses `profile` as the path of
  // its profile. A blocking power of 0: the tuner measures the blocking power.
  plan_file::PlannedJob job;
  // Whether the tuner measures how long messages between pp_ranks take (transfer_time.h). The
  // result replaces the value of `job`.
  bool measures_p2p = true;
  // The GPU type of the hardware facts that the job uses. Tune() reports a rank that trains on
  // another type. Empty: the job uses no facts.
  std::string facts_gpu_name;
  recipe::ChangeRules changes;  // The rules for the plan that the user requested.
  // The limit of the job, or the limit of `changes`. Plans keep this limit while the tuner
  // measures.
  few_switches::ChangeLimit change_limit;
  plan::Target target;
  profiler::SweepBudget budget;
  // The time until every rank has read an assignment.
  double assignment_delay_s = protocol::kAssignmentDelaySeconds;
  // The number of steps for which each of two plans is followed, before the last plan stays active.
  // At least 2.
  int steps_followed = 12;
  bool leaves_plan_in_force = true;
  Nanoseconds timeout = 60'000'000'000;
  ShouldEnd should_end = [] { return false; };
  std::function<void(std::string_view)>
      say;  // Receives progress, one line at a time. May be empty.
};

// The usual clocks at the power limit, from the lowest to the highest of all groups of a kind.
struct ClockRange {
  int lowest_mhz = 0;
  int highest_mhz = 0;
};
// Only the kinds that do not reach their highest clock.
using ReachedRanges = std::map<InstructionKind, ClockRange>;
// Returns a text such as "forward reaches 1215 to 1245 MHz, backward reaches 1275 MHz".
std::string Describe(const ReachedRanges& reached);

struct TuningResult {
  profile::Profile profile;  // The measurements, with confidence intervals.
  // The options from which the plan's promise is computed: all clocks that can be requested.
  // Options that were not measured come from the fitted model, and have no samples. The energies
  // are those of the plan.
  profile::Profile planned;
  // The options for other plans of this job, which a server may make, for example. They differ from
  // `planned` in three ways: they come from all measurements; their times have margins; their
  // energies are such that plans promise what was observed with this plan.
  profile::Profile options;
  // The plan. Its promise is computed without the margins. If the plan stays active, the promise
  // comes from two sources: times that were measured while the plan was followed, and energies that
  // are scaled to the counters. These times did not influence the choice of the plan. If the plan
  // does not stay active, the promise comes from the measurements from which the plan was made. It
  // is then too high by about `expected->optimism`.
  plan_file::PlanFile plan;
  // The plans of pipelines that are faster than the others, by dp_rank. They end together with
  // `plan`, which all other pipelines follow.
  std::map<int, plan_file::PlanFile> faster_plans;
  JobPromise promise;  // What all plans promise.
  // How much the times of instructions vary from run to run. nullopt if too few steps were
  // measured.
  std::optional<profiler::MeasuredNoise> noise;
  double blocking_power_w = 0;
  profiler::SweepSpent spent;
  double slowdown_spent = 0;      // The mean over the spent steps, as a fraction.
  std::optional<SeenSteps> seen;  // The steps with the active plan.
  int rounds = 0;
  // The largest number of clocks that any group measured before a plan was followed.
  int frequencies = 0;
  std::string reason;  // Why the sweep ended.
  // The version of the assignment with the plan. 0: no plan stays active.
  std::int64_t version = 0;
  // From this step on, all ranks follow the plan. -1: no plan stays active.
  std::int64_t plan_from_step = -1;
  // The number of all steps from the beginning to the end of the tuning. This includes the steps of
  // the budget, the steps that follow plans and the baseline, and the steps that pass until ranks
  // have read an assignment.
  std::int64_t steps_taken = 0;
  // The cost of measurement errors. If the plan was followed, `optimism` is 0, because its promise
  // does not come from the measurements that chose the plan. nullopt if the target cannot be
  // reached with some of the drawn measurements.
  std::optional<Expectation> expected;
  // The microbatches at the edges of a step that differ from the others. Plans do not know this.
  std::vector<EdgeDifference> edges;
  // The clocks of the steps with which the plan is compared. Empty without a power limit.
  ReachedRanges reached;
  // What plans for other slowdowns would save. Empty for a job with a pipeline.
  std::vector<OutlookRow> outlook;
};

// Tunes the running job. Takes the steps of the budget, the steps in which plans are followed, and
// the steps until ranks have read an assignment. Fails (kSystem) if ranks are missing or the job
// ends. Fails (kInput) if ranks may not set clocks, run another schedule, or record no energy.
// Fails (kUnreachable) if the plan is slower than allowed, or saves nothing. After a failure, the
// previous assignment is active again, and the measurements remain in JOBDIR/tuner.json. The same
// is true if `should_end` returned true.
Result<TuningResult> Tune(const TuningOptions& options, Clock& clock);

}  // namespace perseus::tuner
