// From what was measured of some clocks to a plan that may use all of them.
//
// The risk. A plan without slowdown lets every instruction that has slack end just in time. So it
// is made of options whose times are known with an error each, and the iteration lasts as long as
// the path whose errors add up worst: on average a plan from unsure times is late, by about
// the size of one standard error (on the shared profiles, 0.05 to 0.15 %). A margin takes that
// back: below a group's highest clock, options are taken to be slower than they seem, by one
// standard error each. Options that nobody measured have larger errors, hence larger margins: the
// plan takes them where they win nevertheless. At the highest clock there is none: the critical
// path's error is in the iteration that the plan is compared with, too, and cancels.
//
// A rival was a margin in the deadline as well, of the standard error of the iteration at the
// highest clocks. On virtual GPUs (docs/client.md, Bloom) it made plans 0.04 % earlier and 0.09 %
// dearer.
#pragma once

#include <span>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule/instruction_graph.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/runtime/profiler/curve_model.h"
#include "perseus/runtime/profiler/measured_option.h"

namespace perseus::profiler {

struct SweepJob {
  schedule::Schedule schedule;
  schedule::PipelineModel model;             // Its blocking power is the measured one.
  std::vector<std::vector<int>> clocks_mhz;  // [rank] what may be asked for, ascending, not empty.
  CurveModel::Sharing sharing = CurveModel::Sharing::kLearnt;
  // Where a switch takes as long as a good part of an instruction, kinds that take turns must not
  // be at different clocks: then all groups of a rank measure the same clock at a time.
  enum class Clocks { kOneAGroup, kOneARank } clocks = Clocks::kOneAGroup;
  Nanoseconds switch_latency = 0;  // Plans are made for it.
};

// The groups that the schedule computes, in order.
std::vector<InstructionGroup> GroupsOf(const schedule::Schedule& schedule);

// A profile to plan with: the model's options, which are the measurements where there are any,
// steadied by their neighbours if few instructions were seen. `samples` is 0 where there are none.
struct PlanningProfileSpec {
  enum class Options { kMeasured, kAll } options = Options::kAll;
  double time_margin = 1;  // Standard errors; 0: none.
};
Result<profile::Profile> PlanningProfile(const SweepJob& job,
                                         std::span<const MeasuredOption> measured,
                                         const PlanningProfileSpec& spec);

// What plans of the job are made and judged with, whatever the profile.
Result<plan::Planner> PlannerOf(const SweepJob& job, const profile::Profile& profile);

// The plan for that target on that profile. `planner` has the margins in its times: what the plan
// promises is to be read off a plan evaluated without them. Fails as PlanForTarget does.
struct SweepPlan {
  plan::Planner planner;
  plan::Plan plan;
};
Result<SweepPlan> PlanFromSweep(const SweepJob& job, std::span<const MeasuredOption> measured,
                                const plan::Target& target, const PlanningProfileSpec& spec = {});

}  // namespace perseus::profiler
