// The orders that GenerateSchedule uses: the instructions of one pp_rank in execution order. The
// caller has checked the sizes, so nothing here fails.
#pragma once

#include <deque>
#include <vector>

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
  void Recompute(int chunk);  // Of the microbatch whose backward comes next.
  void Backward(int chunk);   // Full.
  void BackwardInput(int chunk);
  void BackwardWeight(int chunk);
  // The wgrad of the oldest dgrad that has none yet, if there is one.
  void OldestBackwardWeight();

  int forwards(int chunk) const { return next_forward_[Index(chunk)]; }
  int backwards(int chunk) const { return next_backward_[Index(chunk)]; }
  int weights(int chunk) const { return next_weight_[Index(chunk)]; }
  bool has_pending_weights() const { return !pending_weights_.empty(); }

  std::vector<Instruction> Take() && { return std::move(instructions_); }

 private:
  static std::size_t Index(int chunk) { return static_cast<std::size_t>(chunk); }
  void Add(InstructionKind kind, int chunk, int microbatch) {
    instructions_.push_back({kind, stages_[Index(chunk)], microbatch});
  }

  std::vector<int> stages_;
  std::vector<int> next_forward_;  // [chunk] the next microbatch.
  std::vector<int> next_backward_;
  std::vector<int> next_weight_;
  std::deque<int> pending_weights_;  // The chunk of each dgrad without wgrad, oldest first.
  std::vector<Instruction> instructions_;
};

// All forwards, then all backwards (Huang et al., 2019).
std::vector<Instruction> GpipeOrder(const ScheduleSpec& spec, int rank);

// Every schedule that warms up with forwards, then alternates one forward and one backward, then
// drains: 1F1B (Narayanan et al., 2019), interleaved 1F1B (Narayanan et al., 2021), ZB-H1 and its
// interleaved form (Qi et al., 2024), and 1F1B with early recomputation (Lai et al., 2022).
struct OneForwardOneBackward {
  // How many more forwards a rank warms up with than its successor. One suffices for one chunk;
  // interleaved 1F1B takes two, so that activations arrive before they are needed.
  int warmup_per_hop = 1;
  enum class Backward { kFull, kSplit, kRecomputed } backward = Backward::kFull;
};
std::vector<Instruction> OneForwardOneBackwardOrder(const ScheduleSpec& spec, int rank,
                                                    OneForwardOneBackward variant);

// Microbatches that a chunk takes before the rank turns to its next chunk: about one for each rank.
int MicrobatchesPerRound(int microbatches, int ranks);

// Two chunks a rank in a V: the last rank feeds itself, so backwards start early and the loss is on
// rank 0. ZB-V (Qi et al., 2024, section 6) and DualPipeV (DeepSeek-AI, 2024, halved).
std::vector<Instruction> ZbVOrder(const ScheduleSpec& spec, int rank);
std::vector<Instruction> DualPipeVOrder(const ScheduleSpec& spec, int rank);

}  // namespace perseus::schedule
