// What one rank of the trainer runs in a step: its part of the schedule, with what a virtual GPU
// has to know of each instruction, and what comes from and goes to other ranks. Pure.
#pragma once

#include <optional>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule/instruction_graph.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/simulation/virtual_gpu/instruction_table.h"

namespace perseus::trainer {

// What one stage hands to another on another rank.
struct Tensor {
  bool is_gradient = false;  // Else activations.
  int stage = 0;             // That it is for; over all ranks, as in Schedule.
  int microbatch = 0;
  friend auto operator<=>(const Tensor&, const Tensor&) = default;
};

struct RankInstruction {
  InstructionKind kind = InstructionKind::kForward;
  int stage = 0;  // Over all ranks; -1 for what belongs to none.
  int chunk = 0;
  int microbatch = -1;
  virtual_gpu::InstructionTable table;
  std::optional<Tensor> input;  // Nothing: it has all it needs once the one before it is done.
  struct Output {
    int rank = 0;  // Of the same pipeline.
    Tensor tensor;
  };
  std::optional<Output> output;
};

// In execution order: the schedule's computations, and the model's load, all-reduce and optimizer
// where they take time. Fails (kInput) where the profile lacks an instruction, or a virtual GPU
// cannot run it.
Result<std::vector<RankInstruction>> MakeRankWork(const schedule::Schedule& schedule, int rank,
                                                  const profile::Profile& profile,
                                                  const schedule::PipelineModel& model);

// The ranks that send something to this one or get something from it; ascending.
std::vector<int> NeighboursOf(const schedule::Schedule& schedule, int rank);

// The same work, so many times as long and as dear: short steps for tests. Requires scale > 0.
profile::Profile Scaled(const profile::Profile& profile, double scale);
schedule::FixedInstructions Scaled(schedule::FixedInstructions fixed, double scale);

}  // namespace perseus::trainer
