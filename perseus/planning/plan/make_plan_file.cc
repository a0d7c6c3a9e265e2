#include "perseus/planning/plan/make_plan_file.h"

#include <map>
#include <utility>

#include "perseus/base/instruction_kind.h"
#include "perseus/planning/plan_file/plan_file.h"

namespace perseus::plan {
namespace {

// Returns the stage of each (pp_rank, chunk).
std::map<std::pair<int, int>, int> StagesByPlace(const schedule::Schedule& schedule) {
  std::map<std::pair<int, int>, int> stages;
  for (std::size_t stage = 0; stage < schedule.pp_rank_of_stage.size(); ++stage) {
    stages[{schedule.pp_rank_of_stage[stage], schedule.chunk_of_stage[stage]}] =
        static_cast<int>(stage);
  }
  return stages;
}

}  // namespace

ExecutionModel ModelOf(const plan_file::PlannedJob& job) {
  return ModelOf(job.model, job.switch_latency, job.switch_cost);
}

ExecutionModel ModelOf(const schedule::PipelineModel& model, Nanoseconds switch_latency,
                       const schedule::SwitchCost& cost) {
  const int gpus = model.gpus_per_stage;
  return {.blocking_power_w = model.blocking_power_w * gpus,
          .switch_latency = switch_latency,
          .switch_cost = {.stall = cost.stall, .energy_j = cost.energy_j * gpus}};
}

Result<plan_file::PlanFile> MakePlanFile(const Planner& planner, const Plan& plan,
                                         const Target& target, plan_file::PlannedJob job) {
  PERSEUS_RETURN_IF_ERROR(CheckKeeps(planner, target, plan));
  return DescribePlan(planner, plan, std::move(job));
}

plan_file::PlanFile DescribePlan(const Planner& planner, const Plan& plan,
                                 plan_file::PlannedJob job) {
  const schedule::InstructionGraph& graph = planner.graph();
  const Evaluation& evaluation = plan.evaluation;
  plan_file::PlanFile file{.job = std::move(job),
                           .other_knob_names = graph.other_knob_names,
                           .knob_labels = graph.knob_labels,
                           .target = plan.target,
                           .deadline = plan.deadline,
                           .time = evaluation.time,
                           .energy_j = evaluation.energy_j,
                           .lower_bound_j = plan.lower_bound_j,
                           .switches = evaluation.switches,
                           .baseline_time = planner.baseline().time,
                           .baseline_energy_j = planner.baseline().energy_j,
                           .pp_ranks = {}};
  const auto stages = StagesByPlace(file.job.schedule);
  for (std::size_t rank = 0; rank < graph.pp_rank_orders.size(); ++rank) {
    plan_file::PlannedRank& planned = file.pp_ranks.emplace_back();
    planned.name = graph.pp_rank_names[rank];
    planned.instructions.reserve(graph.pp_rank_orders[rank].size());
    for (int node : graph.pp_rank_orders[rank]) {
      const auto i = static_cast<std::size_t>(node);
      const schedule::OptionSet& set = graph.options_of(node);
      plan_file::PlannedInstruction instruction;
      instruction.kind = set.kind;
      instruction.microbatch = graph.instructions[i].microbatch;
      instruction.start = evaluation.starts[i];
      instruction.duration = evaluation.durations[i];
      instruction.energy_j = evaluation.energies_j[i];
      if (plan_file::IsPlanned(set.kind)) {
        const profile::Option& option = set.options[static_cast<std::size_t>(plan.options[i])];
        instruction.frequency_mhz = option.frequency_mhz;
        instruction.knobs = option.other_knobs;
      }
      if (set.kind == InstructionKind::kGeneric) instruction.name = set.name;
      if (IsComputation(set.kind)) {
        instruction.stage = stages.at({set.pp_rank, set.chunk});
        instruction.chunk = set.chunk;
      }
      planned.instructions.push_back(std::move(instruction));
    }
  }
  return file;
}

}  // namespace perseus::plan
