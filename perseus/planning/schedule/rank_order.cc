#include "perseus/planning/schedule/rank_order.h"

#include <algorithm>

namespace perseus::schedule {

void RankOrder::Forward(int chunk) {
  Add(InstructionKind::kForward, chunk, next_forward_[At(chunk)]++);
}

void RankOrder::Recompute(int chunk) {
  Add(InstructionKind::kRecompute, chunk, next_backward_[At(chunk)]);
}

void RankOrder::Backward(int chunk) {
  Add(InstructionKind::kBackward, chunk, next_backward_[At(chunk)]++);
  ++next_weight_[At(chunk)];
}

void RankOrder::BackwardInput(int chunk) {
  Add(InstructionKind::kBackwardInput, chunk, next_backward_[At(chunk)]++);
  pending_weights_.push_back(chunk);
}

void RankOrder::BackwardWeight(int chunk) {
  Add(InstructionKind::kBackwardWeight, chunk, next_weight_[At(chunk)]++);
  pending_weights_.erase(std::find(pending_weights_.begin(), pending_weights_.end(), chunk));
}

void RankOrder::OldestBackwardWeight() {
  if (has_pending_weights()) BackwardWeight(pending_weights_.front());
}

std::vector<Instruction> GpipeOrder(const ScheduleSpec& spec, int pp_rank) {
  RankOrder order({pp_rank});
  for (int i = 0; i < spec.microbatches; ++i) order.Forward(0);
  for (int i = 0; i < spec.microbatches; ++i) order.Backward(0);
  return std::move(order).Take();
}

int MicrobatchesPerRound(int microbatches, int pp_ranks) {
  return microbatches / std::max(1, microbatches / pp_ranks);
}

std::vector<Instruction> OneForwardOneBackwardOrder(const ScheduleSpec& spec, int pp_rank,
                                                    OneForwardOneBackward variant) {
  using Backward = OneForwardOneBackward::Backward;
  std::vector<int> stages;
  stages.reserve(static_cast<std::size_t>(spec.chunks));
  for (int chunk = 0; chunk < spec.chunks; ++chunk)
    stages.push_back(chunk * spec.pp_ranks + pp_rank);
  RankOrder order(std::move(stages));

  // In each round, forwards go through the chunks from the first to the last, and backwards from
  // the last to the first.
  const int round = MicrobatchesPerRound(spec.microbatches, spec.pp_ranks);
  auto forward_chunk = [&](int index) { return index / round % spec.chunks; };
  auto backward_chunk = [&](int index) { return spec.chunks - 1 - forward_chunk(index); };

  const int total = spec.microbatches * spec.chunks;
  const int warmup = std::min(
      total, (spec.chunks - 1) * round + variant.warmup_per_hop * (spec.pp_ranks - 1 - pp_rank));
  for (int i = 0; i < warmup; ++i) order.Forward(forward_chunk(i));
  for (int i = 0; i < total; ++i) {
    if (warmup + i < total) order.Forward(forward_chunk(warmup + i));
    const int chunk = backward_chunk(i);
    switch (variant.backward) {
      case Backward::kFull:
        order.Backward(chunk);
        break;
      case Backward::kSplit:
        // A pp_rank delays as many wgrads as there are pp_ranks before it. They fill its wait in
        // the drain phase, and no pp_rank keeps more activations than pp_rank 0 always does.
        order.BackwardInput(chunk);
        if (i >= pp_rank) order.OldestBackwardWeight();
        break;
      case Backward::kRecomputed:
        // Recomputation needs nothing from other pp_ranks. Directly before the backward, it runs
        // while the pp_rank would wait for the gradient.
        order.Recompute(chunk);
        order.Backward(chunk);
        break;
    }
  }
  while (order.has_pending_weights()) order.OldestBackwardWeight();
  return std::move(order).Take();
}

}  // namespace perseus::schedule
