// A pipeline schedule as data: for each pp_rank, its instructions in execution order.
//
// Stages count the model chunks over all pp_ranks, as PyTorch does: R pp_ranks with C chunks each
// have R*C stages. The schedule also says which pp_rank holds a stage. Interleaved schedules loop
// (pp_rank = stage mod R). ZB-V and DualPipeV fold into a V (stages 0..R-1 are on the pp_ranks
// 0..R-1, stages R..2R-1 on the pp_ranks R-1..0).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"

namespace perseus::schedule {

struct Instruction {
  InstructionKind kind = InstructionKind::kForward;
  int stage = 0;  // Numbered over all pp_ranks.
  int microbatch = 0;

  bool operator==(const Instruction&) const = default;
};

struct Schedule {
  std::string name;
  int microbatches = 0;
  std::vector<std::vector<Instruction>> pp_ranks;  // [pp_rank][position]
  std::vector<int> pp_rank_of_stage;               // [stage]
  std::vector<int> chunk_of_stage;                 // [stage] Its number on its pp_rank, from 0.

  int stages() const { return static_cast<int>(pp_rank_of_stage.size()); }
};

// A schedule that this library generates by name.
struct ScheduleSpec {
  std::string name;  // One of ScheduleNames().
  int pp_ranks = 0;
  int microbatches = 0;
  int chunks = 1;  // Stages on each pp_rank; always 2 for zb-v and dualpipe-v.
};

// The names that GenerateSchedule knows. Schedules that torch.distributed.pipelining also has are
// the same, instruction by instruction.
//
//   gpipe                 all forwards, then all backwards
//   1f1b                  a forward and a backward in turn, so that pp_rank r of R holds the
//                         activations of at most R - r microbatches
//   interleaved-1f1b      1f1b over several chunks on each pp_rank: a smaller bubble, but more
//                         communication
//   early-recompute-1f1b  1f1b with a recompute before each backward, which fills the wait for the
//                         gradient. As published (Merak), the steady state fuses the two. Here
//                         they stay separate, in the same order: a profile has no fused instruction
//   zb-h1                 1f1b with split backwards; wgrads fill the drain, at the memory of 1f1b
//   interleaved-zb        the same over several chunks on each pp_rank
//   zb-v                  two chunks on each pp_rank in a V, split backwards: no bubble if forward,
//                         dgrad and wgrad take the same time
//   dualpipe-v            two chunks on each pp_rank in a V, the forward of one beside the backward
//                         of the other. Only the ends split off wgrads. A forward and a backward
//                         that PyTorch overlaps run one after the other here
std::span<const std::string_view> ScheduleNames();

// Fails (kInput) for an unknown name, for sizes out of range, and for sizes that the schedule does
// not allow (for example, interleaved-1f1b needs microbatches in whole rounds). The message says
// which sizes are allowed.
Result<Schedule> GenerateSchedule(const ScheduleSpec& spec);

// Reads the CSV that torch.distributed.pipelining dumps and loads: one row for each pp_rank, one
// cell for each instruction, <stage><kind><microbatch>. Kinds: F forward; I dgrad; W wgrad; B full
// backward, or dgrad if the file also has a W of the same stage and microbatch; BW full backward; R
// recompute. "(0F7;7B3)OVERLAP_F_B" contains its instructions in that order. SEND_*, RECV_*,
// UNSHARD, RESHARD, REDUCE_GRAD, "(0SEND_F0;2RECV_F0)BATCH_P2P" and empty cells are not
// computations and are skipped.
Result<Schedule> ParseSchedule(std::string_view text, std::string_view name);

// Writes the same format: only computations, without bubbles. (PyTorch's letters: F, I, W, B; R.)
std::string FormatSchedule(const Schedule& schedule);

// 1F1B with any warm-up: each pp_rank may start more forwards before its first backward. pp_rank r
// runs in_flight[r] forwards, then a backward and a forward in turn, then the remaining
// backwards. So it holds the activations of in_flight[r] microbatches, or of all if there are
// fewer. GenerateSchedule's 1f1b is {R, R - 1, ..., 1} for R pp_ranks.
//
// Fails (kInput) without a pp_rank or a microbatch, if a number is below 1, and if a pp_rank has
// more in flight than the one before it: its warm-up would wait for forwards that the pp_rank
// before it runs only after a backward, so the schedule would deadlock.
Result<Schedule> GenerateWarmupSchedule(int microbatches, std::span<const int> in_flight);

// Checks that a schedule computes everything that an iteration needs, each instruction once.
// (BuildInstructionGraph checks that its order can run.)
struct ScheduleDefect {
  int pp_rank = 0;
  std::string message;  // Cause and remedy.
};

// For every microbatch, every stage has to run one forward, either one full backward or one dgrad
// and one wgrad, and at most one recompute, all on the pp_rank that holds the stage. Returns the
// first defect, by stage and microbatch. Time and memory are proportional to the number of
// instructions, whatever numbers they contain.
std::optional<ScheduleDefect> FindDefect(const Schedule& schedule);

// "forward of microbatch 3 (stage 2)".
std::string Describe(const Instruction& instruction);

// How much activation memory a schedule needs: the microbatches that each pp_rank holds at a time.
//
// A forward allocates the activations of its (stage, microbatch). The full backward frees them. If
// the backward is split, the wgrad frees them, because it still needs the inputs of the layer. A
// pp_rank runs its instructions one after another. So its memory over an iteration follows from the
// order of its instructions alone: clocks, delays and stragglers do not change the peak.
//
// If a microbatch has a recompute on a stage, its forward keeps only a part, and the recompute
// allocates the rest.
//
// Not modeled: buffers of communication beside the activations.

// The most that each pp_rank holds at any time: [pp_rank]. `size_of_stage` has the size of the
// activations of one microbatch for each stage, in any unit. `kept_of_stage` has the part that
// stays until a recompute; empty: all. Requires a schedule without defect.
std::vector<std::int64_t> PeakActivations(const Schedule& schedule,
                                          std::span<const std::int64_t> size_of_stage,
                                          std::span<const std::int64_t> kept_of_stage = {});

// The same in microbatches: every (stage, microbatch) counts as one.
std::vector<std::int64_t> PeakInFlight(const Schedule& schedule);

// The schedule in words, for frameworks that load no schedule file: what each pp_rank runs. A line
// for each pp_rank, with its warm-up and its order:
//
//   pp_rank 0: 5 forwards before its first backward; 5 F, 7 (B F), 5 B
//
// "7 (B F)" is a backward and a forward in turn, seven times. The letters are those of the schedule
// file (F, B, I, W, R); with several chunks, the stage is before them: "4 (0F 2F)". Microbatches
// are in ascending order for each stage and kind, or else they follow the letter.
std::string DescribeOrder(const Schedule& schedule);

}  // namespace perseus::schedule
