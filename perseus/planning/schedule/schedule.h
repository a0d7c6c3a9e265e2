// A pipeline schedule as data: for each pp_rank, its instructions in execution order.
//
// Stages count the model chunks over all pp_ranks, as in PyTorch: R pp_ranks with C chunks each
// have R*C stages. The schedule also states which pp_rank holds each stage. Interleaved schedules
// loop (pp_rank = stage mod R). ZB-V and DualPipeV fold into a V (stages 0..R-1 are on the pp_ranks
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

// The names that GenerateSchedule knows. If torch.distributed.pipelining has the same schedule,
// both are equal, instruction by instruction.
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
//   interleaved-zb        as zb-h1, but over several chunks on each pp_rank
//   zb-v                  two chunks on each pp_rank in a V, split backwards: no bubble if forward,
//                         dgrad and wgrad take the same time
//   dualpipe-v            two chunks on each pp_rank in a V: it runs the forward of one chunk with
//                         the backward of the other. Only the ends split off wgrads. PyTorch
//                         overlaps some forwards and backwards. Here, they run one after the other
std::span<const std::string_view> ScheduleNames();

// Fails (kInput) for an unknown name, for sizes out of range, and for sizes that the schedule does
// not allow (for example, interleaved-1f1b needs microbatches in whole rounds). The message states
// the allowed sizes.
Result<Schedule> GenerateSchedule(const ScheduleSpec& spec);

// Reads the CSV that torch.distributed.pipelining dumps and loads. It has one row for each pp_rank,
// and one cell for each instruction: <stage><kind><microbatch>. The kinds are: F forward; I dgrad;
// W wgrad; BW full backward; R recompute; O optimizer step (not PyTorch's); B full backward, or
// dgrad if the file also has a W of the same stage and microbatch. "(0F7;7B3)OVERLAP_F_B" contains
// its instructions in that order. Other cells are not computations and are skipped: SEND_*, RECV_*,
// UNSHARD, RESHARD, REDUCE_GRAD, "(0SEND_F0;2RECV_F0)BATCH_P2P" and empty cells.
Result<Schedule> ParseSchedule(std::string_view text, std::string_view name);

// Writes the same format: only computations, without bubbles. (PyTorch's letters: F, I, W, B; R.)
std::string FormatSchedule(const Schedule& schedule);

// 1F1B with any warm-up: each pp_rank may start more forwards before its first backward. pp_rank r
// runs in_flight[r] forwards, then alternates a backward and a forward, and then runs the remaining
// backwards. So it holds the activations of at most in_flight[r] microbatches. For R pp_ranks, the
// 1f1b of GenerateSchedule is {R, R - 1, ..., 1}.
//
// Fails (kInput) without a pp_rank or a microbatch, and if a number is below 1. Also fails if a
// pp_rank has more microbatches in flight than the previous pp_rank, because this schedule would
// deadlock: its warm-up would wait for forwards that the previous pp_rank runs only after a
// backward.
Result<Schedule> GenerateWarmupSchedule(int microbatches, std::span<const int> in_flight);

// Checks that a schedule computes everything that an iteration needs, each instruction once.
// (BuildInstructionGraph checks that its order can run.)
struct ScheduleDefect {
  int pp_rank = 0;
  std::string message;  // Cause and remedy.
};

// For every microbatch, every stage has to run one forward, either one full backward or one dgrad
// and one wgrad, and at most one recompute and one optimizer step. All of them must be on the
// pp_rank that holds the stage. Returns the first defect, by stage and microbatch. Time and memory
// are proportional to the number of instructions, even if their numbers are huge.
std::optional<ScheduleDefect> FindDefect(const Schedule& schedule);

// "forward of microbatch 3 (stage 2)".
std::string Describe(const Instruction& instruction);

// The activation memory that a schedule needs, as the microbatches that each pp_rank holds at a
// time.
//
// A forward allocates the activations of its (stage, microbatch). The full backward frees them. If
// the backward is split, the wgrad frees them, because it still needs the inputs of the layer. A
// pp_rank runs its instructions one after another. So its memory over an iteration depends only on
// the order of its instructions: clocks, delays and stragglers do not change the peak.
//
// If a microbatch has a recompute on a stage, its forward keeps only a part, and the recompute
// allocates the rest.
//
// Not modeled: communication buffers.

// Returns the maximum that each pp_rank holds at any time: [pp_rank]. `size_of_stage` has the size
// of the activations of one microbatch for each stage, in any unit. `kept_of_stage` has the part
// that stays until a recompute. If it is empty, all activations stay. Requires a schedule without
// defect.
std::vector<std::int64_t> PeakActivations(const Schedule& schedule,
                                          std::span<const std::int64_t> size_of_stage,
                                          std::span<const std::int64_t> kept_of_stage = {});

// The same in microbatches: every (stage, microbatch) counts as one.
std::vector<std::int64_t> PeakInFlight(const Schedule& schedule);

// Describes the schedule in words, for frameworks that cannot load a schedule file. The text has
// one line for each pp_rank, with its warm-up and its order:
//
//   pp_rank 0: 5 forwards before its first backward; 5 F, 7 (B F), 5 B
//
// "7 (B F)" means a backward and a forward, seven times. The letters are those of the schedule file
// (F, B, I, W, R). With several chunks, the stage is before the letters: "4 (0F 2F)". If the
// microbatches of a stage and kind are in ascending order, they are left out. Otherwise, they
// follow the letter.
std::string DescribeOrder(const Schedule& schedule);

}  // namespace perseus::schedule
