// Makes a plan from measurements at some of the clocks. The plan may use all clocks.
//
// The risk. In a plan without slowdown, every instruction that has slack ends just in time. So the
// plan consists of options whose times have errors. The iteration takes as long as the path with
// the largest sum of errors. On average, a plan from uncertain times is late by about one standard
// error (on the shared profiles, 0.05 to 0.15 %). A margin compensates for this: an option below
// its group's highest clock counts as slower by one standard error. Options that were not measured
// have larger errors, and so larger margins. The plan still uses such an option if it is the best
// one despite its margin. Options at the highest clock have no margin: the error of the critical
// path is also in the baseline iteration, so the two errors cancel.
//
// Alternative that we rejected: an additional margin in the deadline. This margin was the standard
// error of the iteration time at the highest clocks. On virtual GPUs
// (docs/explanation/client-design.md, Bloom), it made plans 0.04 % earlier, and 0.09 % more
// expensive.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/few_switches/change_rate.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule/instruction_graph.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/runtime/profiler/measured_option.h"

namespace perseus::profiler {

struct SweepJob {
  schedule::Schedule schedule;
  schedule::PipelineModel model;             // Contains the measured blocking power.
  std::vector<std::vector<int>> clocks_mhz;  // By rank: the possible clocks, ascending, not empty.
  // If a switch takes a large part of an instruction, alternating kinds must not have different
  // clocks. Then all groups of a rank measure the same clock at a time.
  enum class Clocks { kOneAGroup, kOneARank } clocks = Clocks::kOneAGroup;
  Nanoseconds switch_latency = 0;               // For the evaluation of plans.
  schedule::SwitchCost switch_cost = {};        // For one GPU, in the same evaluation.
  few_switches::ChangeLimit change_limit = {};  // The limit of the plans.
  // The plans use no option that takes longer, except at the highest clock. Absent: no limit.
  std::map<InstructionGroup, Nanoseconds> longest = {};
};

// The groups of the schedule's computations, sorted.
std::vector<InstructionGroup> GroupsOf(const schedule::Schedule& schedule);

// The profile for the planner. Its options come from the model (option_model.h). A measured option
// is close to its measurement. If it has few samples, the model smooths it with its neighbors.
// `samples` is 0 for an option that was not measured. `time_margin` is in standard errors. 0: no
// margin.
Result<profile::Profile> PlanningProfile(const SweepJob& job,
                                         std::span<const MeasuredOption> measured,
                                         double time_margin = 1);

// Creates the planner that makes and evaluates all plans of the job, for any profile.
Result<plan::Planner> PlannerOf(const SweepJob& job, const profile::Profile& profile);

// Returns the plan of `planner` for `target`, within the limit of clock changes. Fails in the same
// cases as PlanForTarget and KeepChangeLimit.
Result<plan::Plan> PlanWith(const plan::Planner& planner, const plan::Target& target,
                            const few_switches::ChangeLimit& limit);

}  // namespace perseus::profiler
