// The work of one rank of the trainer in a step: its part of the schedule, the table of the virtual
// GPU for each instruction, and the tensors that it receives from and sends to other ranks. All
// functions are pure.
#pragma once

#include <optional>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule/instruction_graph.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/simulation/virtual_gpu/virtual_gpu.h"

namespace perseus::trainer {

// The data that one stage sends to a stage on another rank.
struct Tensor {
  bool is_gradient = false;  // Otherwise activations.
  int stage = 0;             // The stage that receives it, numbered as in Schedule.
  int microbatch = 0;
  friend auto operator<=>(const Tensor&, const Tensor&) = default;
};

struct RankInstruction {
  InstructionKind kind = InstructionKind::kForward;
  int stage = 0;  // Numbered as in Schedule. -1 if the instruction has none.
  int chunk = 0;
  int microbatch = -1;
  virtual_gpu::InstructionTable table;
  std::optional<Tensor> input;  // nullopt: needs no input of another rank.
  struct Output {
    int rank = 0;  // A rank of the same pipeline.
    Tensor tensor;
  };
  std::optional<Output> output;
};

// Returns the work in execution order: the computations of the schedule, and load, all-reduce and
// optimizer of the model if they take time. Fails (kInput) if the profile lacks an instruction, or
// if a virtual GPU cannot run it.
Result<std::vector<RankInstruction>> MakeRankWork(const schedule::Schedule& schedule, int rank,
                                                  const profile::Profile& profile,
                                                  const schedule::PipelineModel& model);

// The ranks that send tensors to this rank or receive tensors from it, ascending.
std::vector<int> NeighborsOf(const schedule::Schedule& schedule, int rank);

// The same work with all times and energies multiplied by `scale`. Tests use it for short steps.
// Requires scale > 0.
profile::Profile Scaled(const profile::Profile& profile, double scale);
schedule::FixedInstructions Scaled(schedule::FixedInstructions fixed, double scale);

}  // namespace perseus::trainer
