// The orders that GenerateSchedule uses: the instructions of one pp_rank in execution order. The
// caller has checked the sizes, so these functions cannot fail.
#pragma once

#include <deque>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/planning/schedule/schedule.h"

namespace perseus::schedule {

// Builds the order of one pp_rank. In every schedule here, a stage takes its microbatches in order.
// So the kind and the chunk alone determine the next instruction.
class RankOrder {
 public:
  // `stages[chunk]` is the stage of that chunk of this pp_rank.
  explicit RankOrder(std::vector<int> stages)
      : stages_(std::move(stages)),
        next_forward_(stages_.size()),
        next_backward_(stages_.size()),
        next_weight_(stages_.size()) {}

  void Forward(int chunk);
  void Recompute(int chunk);  // For the microbatch whose backward comes next.
  void Backward(int chunk);   // The full backward.
  void BackwardInput(int chunk);
  void BackwardWeight(int chunk);
  // Adds the wgrad of the oldest dgrad that has no wgrad yet. Does nothing if every dgrad has its
  // wgrad.
  void OldestBackwardWeight();

  int forwards(int chunk) const { return next_forward_[At(chunk)]; }
  int weights(int chunk) const { return next_weight_[At(chunk)]; }
  bool has_pending_weights() const { return !pending_weights_.empty(); }

  std::vector<Instruction> Take() && { return std::move(instructions_); }

 private:
  void Add(InstructionKind kind, int chunk, int microbatch) {
    instructions_.push_back({kind, stages_[At(chunk)], microbatch});
  }

  std::vector<int> stages_;
  std::vector<int> next_forward_;  // [chunk] the next microbatch.
  std::vector<int> next_backward_;
  std::vector<int> next_weight_;
  std::deque<int> pending_weights_;  // The chunk of each dgrad without wgrad, oldest first.
  std::vector<Instruction> instructions_;
};

// All forwards, then all backwards (Huang et al., 2019).
std::vector<Instruction> GpipeOrder(const ScheduleSpec& spec, int pp_rank);

// Every schedule that first warms up with forwards, then alternates one forward and one backward,
// and then runs the remaining backwards: 1F1B (Narayanan et al., 2019), interleaved 1F1B (Narayanan
// et al., 2021), ZB-H1 and its interleaved form (Qi et al., 2024), and 1F1B with early
// recomputation (Lai et al., 2022).
struct OneForwardOneBackward {
  // A pp_rank warms up with this many more forwards than the next pp_rank. One is enough for one
  // chunk. Interleaved 1F1B uses two, so that activations arrive before they are needed.
  int warmup_per_hop = 1;
  enum class Backward { kFull, kSplit, kRecomputed } backward = Backward::kFull;
};
std::vector<Instruction> OneForwardOneBackwardOrder(const ScheduleSpec& spec, int pp_rank,
                                                    OneForwardOneBackward variant);

// The number of microbatches that a pp_rank runs on one chunk before it changes to its next chunk:
// about one for each pp_rank of the pipeline.
int MicrobatchesPerRound(int microbatches, int pp_ranks);

// Schedules with two chunks on each pp_rank, in the shape of a V. The last pp_rank passes the
// activations of its first chunk to its second chunk. So the loss is on pp_rank 0, and backwards
// start early. ZB-V: Qi et al., 2024, section 6. DualPipeV: DeepSeek-AI, 2024, one half of
// DualPipe.
std::vector<Instruction> ZbVOrder(const ScheduleSpec& spec, int pp_rank);
std::vector<Instruction> DualPipeVOrder(const ScheduleSpec& spec, int pp_rank);

}  // namespace perseus::schedule
