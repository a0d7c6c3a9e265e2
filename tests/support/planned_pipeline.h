// The plan of a synthetic pipeline, for tests of code that reads plans.
#pragma once

#include "perseus/planning/plan/make_plan_file.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus {

// The plan has one stage on each pp_rank, and is at most 5 % slower than maximum frequency.
inline plan_file::PlanFile PlanPipeline(const schedule::ScheduleSpec& schedule) {
  synthetic::SyntheticProfileSpec spec;
  spec.pp_ranks = schedule.pp_ranks;
  spec.kinds = {InstructionKind::kForward, InstructionKind::kBackward};
  plan_file::PlannedJob job;
  job.profile = "profile.csv";
  job.schedule = *schedule::GenerateSchedule(schedule);
  job.model.blocking_power_w = 84;
  auto graph =
      schedule::BuildInstructionGraph(job.schedule, *synthetic::SynthesizeProfile(spec), job.model);
  const auto planner = plan::Planner::Create(*std::move(graph), {job.model.blocking_power_w, 0});
  const auto plan = planner->PlanFor(planner->baseline().time + planner->baseline().time / 20);
  return plan::DescribePlan(*planner, *plan, job);
}

}  // namespace perseus
