// For tests: the smallest plans.
#pragma once

#include <string>

#include "perseus/planning/plan_file/plan_file.h"

namespace perseus::node {

inline constexpr const char* kPlanA = "p-00000000000000aa";
inline constexpr const char* kPlanB = "p-00000000000000bb";

// Each rank has a forward and a backward.
inline std::string TinyPlan(int ranks = 1) {
  plan_file::PlanFile plan;
  plan.job.profile = "profile.csv";
  plan.job.schedule.name = "gpipe";
  plan.job.schedule.microbatches = 1;
  plan.target = "no slowdown";
  plan.deadline = plan.time = plan.baseline_time = 1'000'000'000;
  plan.energy_j = plan.lower_bound_j = plan.baseline_energy_j = 100;
  for (int rank = 0; rank < ranks; ++rank) {
    plan_file::PlannedRank& planned = plan.pp_ranks.emplace_back();
    planned.name = "rank " + std::to_string(rank);
    auto& order = plan.job.schedule.pp_ranks.emplace_back();
    for (const InstructionKind kind : {InstructionKind::kForward, InstructionKind::kBackward}) {
      plan_file::PlannedInstruction instruction;
      instruction.kind = kind;
      instruction.stage = rank;
      instruction.microbatch = 0;
      instruction.frequency_mhz = 1410;
      instruction.duration = 1'000'000;
      planned.instructions.push_back(instruction);
      order.push_back({kind, 0, 0});
    }
    plan.job.schedule.pp_rank_of_stage.push_back(rank);
    plan.job.schedule.chunk_of_stage.push_back(0);
  }
  return plan_file::FormatPlan(plan);
}

}  // namespace perseus::node
