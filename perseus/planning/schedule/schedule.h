// A pipeline schedule as data: for each rank, its computations in execution order.
//
// Stages here count the model chunks over all ranks, as PyTorch does: with R ranks and C chunks a
// rank there are R*C stages. Where each stage lives is part of the schedule: interleaved schedules
// loop (rank = stage mod R), ZB-V and DualPipeV fold into a V (stages 0..R-1 on ranks 0..R-1,
// stages R..2R-1 on ranks R-1..0).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"

namespace perseus::schedule {

struct Instruction {
  InstructionKind kind = InstructionKind::kForward;
  int stage = 0;  // Over all ranks.
  int microbatch = 0;

  bool operator==(const Instruction&) const = default;
};

struct Schedule {
  std::string name;
  int microbatches = 0;
  std::vector<std::vector<Instruction>> ranks;  // [rank][position]
  std::vector<int> pp_rank_of_stage;            // [stage]
  std::vector<int> chunk_of_stage;              // [stage]; counts the stages of its rank from 0.

  int stages() const { return static_cast<int>(pp_rank_of_stage.size()); }
};

// A schedule that this library generates by name.
struct ScheduleSpec {
  std::string name;  // One of ScheduleNames().
  int ranks = 0;
  int microbatches = 0;
  int chunks = 1;  // Stages per rank; fixed at 2 for zb-v and dualpipe-v.
};

// What GenerateSchedule knows. Those that torch.distributed.pipelining has too are equal to its
// own, instruction by instruction.
//
//   gpipe                 all forwards, then all backwards
//   1f1b                  a forward and a backward in turn, so that rank r of R holds the
//                         activations of R - r microbatches at most
//   interleaved-1f1b      1f1b over several chunks a rank: a smaller bubble for more communication
//   early-recompute-1f1b  1f1b with a recompute before each backward, which fills the wait for the
//                         gradient. As published (Merak), steady state fuses the two; here they
//                         stay apart in the same order, since a profile has no fused instruction
//   zb-h1                 1f1b with split backwards; wgrads fill the drain, at the memory of 1f1b
//   interleaved-zb        the same over several chunks a rank
//   zb-v                  two chunks a rank in a V, split backwards: no bubble if forward, dgrad
//   and
//                         wgrad take equally long
//   dualpipe-v            two chunks a rank in a V, the forward of one beside the backward of the
//                         other; wgrads are split off only at the ends. Forward and backward that
//                         PyTorch overlaps stand one after the other here
std::span<const std::string_view> ScheduleNames();

// Fails (kInput) for an unknown name, sizes out of range, or sizes that the schedule cannot take
// (interleaved-1f1b needs microbatches in whole rounds, for instance), naming what it can take.
Result<Schedule> GenerateSchedule(const ScheduleSpec& spec);

// Reads the CSV that torch.distributed.pipelining dumps and loads: a row a rank, a cell an
// instruction, <stage><kind><microbatch>. Kinds: F forward; I dgrad; W wgrad; B full backward, or
// dgrad where the file also has a W of the same stage and microbatch; BW full backward; R
// recompute.
// "(0F7;7B3)OVERLAP_F_B" holds its instructions in that order. SEND_*, RECV_*, UNSHARD, RESHARD,
// REDUCE_GRAD and empty cells are no computations and are skipped.
Result<Schedule> ParseSchedule(std::string_view text, std::string_view name);

// The same form back, computations only, without bubbles. (PyTorch's letters: F, I, W, B; R.)
std::string FormatSchedule(const Schedule& schedule);

}  // namespace perseus::schedule
