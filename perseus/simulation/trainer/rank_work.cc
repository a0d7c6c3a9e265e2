#include "perseus/simulation/trainer/rank_work.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "perseus/base/index.h"

namespace perseus::trainer {
namespace {

using enum InstructionKind;

bool IsGradientStep(InstructionKind kind) { return kind == kBackward || kind == kBackwardInput; }

int RankOf(const schedule::Schedule& schedule, int stage) {
  return schedule.pp_rank_of_stage[At(stage)];
}

// The stage that sends the input of an instruction, or -1 if it needs no input of another stage.
int SourceOf(const schedule::Schedule& schedule, const schedule::Instruction& instruction) {
  if (instruction.kind == kForward) return instruction.stage - 1;
  if (IsGradientStep(instruction.kind) && instruction.stage + 1 < schedule.stages())
    return instruction.stage + 1;
  return -1;
}

// The stage that receives the output of an instruction, or -1.
int TargetOf(const schedule::Schedule& schedule, const schedule::Instruction& instruction) {
  if (instruction.kind == kForward && instruction.stage + 1 < schedule.stages())
    return instruction.stage + 1;
  return IsGradientStep(instruction.kind) ? instruction.stage - 1 : -1;
}

Result<RankInstruction> MakeComputation(const schedule::Schedule& schedule, int rank,
                                        const schedule::Instruction& instruction,
                                        const profile::Profile& profile) {
  RankInstruction made{.kind = instruction.kind,
                       .stage = instruction.stage,
                       .chunk = schedule.chunk_of_stage[At(instruction.stage)],
                       .microbatch = instruction.microbatch,
                       .table = {},
                       .input = {},
                       .output = {}};
  PERSEUS_ASSIGN_OR_RETURN(
      auto table, virtual_gpu::MakeInstructionTable(profile, rank, made.chunk, instruction.kind));
  made.table = table;
  const bool is_gradient = instruction.kind != kForward;
  if (const int source = SourceOf(schedule, instruction);
      source >= 0 && RankOf(schedule, source) != rank) {
    made.input = Tensor{is_gradient, instruction.stage, instruction.microbatch};
  }
  if (const int target = TargetOf(schedule, instruction);
      target >= 0 && RankOf(schedule, target) != rank) {
    made.output = {RankOf(schedule, target), {is_gradient, target, instruction.microbatch}};
  }
  return made;
}

RankInstruction MakeFixed(InstructionKind kind, const schedule::FixedInstructions::Cost& cost,
                          const schedule::PipelineModel& model, int microbatch) {
  const double time_s = ToSeconds(cost.time);
  const double energy_j = cost.energy_j < 0 ? model.blocking_power_w * time_s : cost.energy_j;
  return {.kind = kind,
          .stage = -1,
          .chunk = 0,
          .microbatch = microbatch,
          .table = virtual_gpu::FixedInstruction({time_s, energy_j}),
          .input = {},
          .output = {}};
}

}  // namespace

Result<std::vector<RankInstruction>> MakeRankWork(const schedule::Schedule& schedule, int rank,
                                                  const profile::Profile& profile,
                                                  const schedule::PipelineModel& model) {
  const schedule::FixedInstructions& fixed = model.fixed;
  std::vector<RankInstruction> work;
  for (const schedule::Instruction& instruction : schedule.pp_ranks[At(rank)]) {
    if (instruction.kind == kForward && instruction.stage == 0 && fixed.load.time > 0) {
      work.push_back(MakeFixed(kLoad, fixed.load, model, instruction.microbatch));
    }
    PERSEUS_ASSIGN_OR_RETURN(auto made, MakeComputation(schedule, rank, instruction, profile));
    work.push_back(std::move(made));
  }
  if (fixed.all_reduce.time > 0) {
    work.push_back(MakeFixed(kAllReduce, fixed.all_reduce, model, -1));
  }
  if (fixed.optimizer.time > 0) work.push_back(MakeFixed(kOptimizer, fixed.optimizer, model, -1));
  return work;
}

std::vector<int> NeighborsOf(const schedule::Schedule& schedule, int rank) {
  std::set<int> neighbors;
  for (int stage = 0; stage + 1 < schedule.stages(); ++stage) {
    const int here = RankOf(schedule, stage);
    const int next = RankOf(schedule, stage + 1);
    if (here == next) continue;
    if (here == rank) neighbors.insert(next);
    if (next == rank) neighbors.insert(here);
  }
  return {neighbors.begin(), neighbors.end()};
}

profile::Profile Scaled(const profile::Profile& profile, double scale) {
  std::vector<profile::ProfileEntry> entries(profile.entries().begin(), profile.entries().end());
  for (profile::ProfileEntry& entry : entries) {
    for (profile::Option& option : entry.options) {
      option.time =
          std::max<Nanoseconds>(1, std::llround(static_cast<double>(option.time) * scale));
      option.energy_j *= scale;
    }
  }
  return profile::Profile(profile.name(), profile.other_knob_names(), std::move(entries));
}

schedule::FixedInstructions Scaled(schedule::FixedInstructions fixed, double scale) {
  const auto scaled = [scale](Nanoseconds time) {
    return static_cast<Nanoseconds>(std::llround(static_cast<double>(time) * scale));
  };
  fixed.p2p = scaled(fixed.p2p);
  for (schedule::FixedInstructions::Cost* cost :
       {&fixed.load, &fixed.all_reduce, &fixed.optimizer}) {
    cost->time = scaled(cost->time);
    if (cost->energy_j >= 0) cost->energy_j *= scale;
  }
  return fixed;
}

}  // namespace perseus::trainer
