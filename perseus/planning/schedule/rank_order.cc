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
        // A pp_rank delays as many wgrads as there are earlier pp_ranks. These wgrads fill its wait
        // in the drain phase. With this number, no pp_rank needs more memory for activations than
        // pp_rank 0.
        order.BackwardInput(chunk);
        if (i >= pp_rank) order.OldestBackwardWeight();
        break;
      case Backward::kRecomputed:
        // A recompute needs nothing from other pp_ranks. So directly before the backward, it runs
        // while the pp_rank would otherwise wait for the gradient.
        order.Recompute(chunk);
        order.Backward(chunk);
        break;
    }
  }
  while (order.has_pending_weights()) order.OldestBackwardWeight();
  return std::move(order).Take();
}

// The schedules in the shape of a V on R pp_ranks. Chunk 0 of pp_rank r is stage r, and its
// forwards go down to the last pp_rank. Chunk 1 is stage 2R-1-r, and its forwards go up to pp_rank
// 0.
namespace {

constexpr int kDown = 0;
constexpr int kUp = 1;

RankOrder VOrder(const ScheduleSpec& spec, int pp_rank) {
  return RankOrder({pp_rank, 2 * spec.pp_ranks - 1 - pp_rank});
}

void BackwardInputAndWeight(RankOrder& order, int chunk) {
  order.BackwardInput(chunk);
  order.BackwardWeight(chunk);
}

}  // namespace

std::vector<Instruction> ZbVOrder(const ScheduleSpec& spec, int pp_rank) {
  // The pattern needs at least 2R-1 microbatches. With fewer, this function makes it for 2R-1 and
  // then removes the microbatches that do not exist.
  const int microbatches = std::max(spec.microbatches, 2 * spec.pp_ranks - 1);
  const int pp_ranks_after = spec.pp_ranks - 1 - pp_rank;
  RankOrder order = VOrder(spec, pp_rank);

  // Warm-up: forwards down until the first microbatch comes back up. Then forwards down and up in
  // turn. Then only forwards up, each with its backward. So this pp_rank uses all of its memory,
  // but no more.
  for (int i = 0; i < 2 * pp_ranks_after + 1; ++i) order.Forward(kDown);
  for (int i = 0; i < pp_rank; ++i) {
    order.Forward(kUp);
    order.Forward(kDown);
  }
  for (int i = 0; i < pp_ranks_after + 1; ++i) {
    order.Forward(kUp);
    BackwardInputAndWeight(order, kUp);
  }
  // Steady state: a forward, a dgrad and a wgrad of each chunk.
  while (order.forwards(kUp) < microbatches) {
    if (order.forwards(kDown) < microbatches) order.Forward(kDown);
    BackwardInputAndWeight(order, kDown);
    order.Forward(kUp);
    BackwardInputAndWeight(order, kUp);
  }
  // Drain: first dgrads, because other pp_ranks wait for them. Wgrads fill the remaining waiting.
  for (int i = 0; i < pp_rank; ++i) {
    order.BackwardInput(kDown);
    order.BackwardInput(kUp);
  }
  for (int i = 0; i < pp_ranks_after + 1; ++i) {
    order.BackwardInput(kDown);
    order.BackwardWeight(kDown);
  }
  while (order.weights(kUp) < microbatches) order.BackwardWeight(kUp);
  while (order.weights(kDown) < microbatches) order.BackwardWeight(kDown);

  std::vector<Instruction> instructions = std::move(order).Take();
  std::erase_if(instructions, [&](const Instruction& instruction) {
    return instruction.microbatch >= spec.microbatches;
  });
  return instructions;
}

std::vector<Instruction> DualPipeVOrder(const ScheduleSpec& spec, int pp_rank) {
  const int pp_ranks_after = spec.pp_ranks - 1 - pp_rank;
  RankOrder order = VOrder(spec, pp_rank);

  // Warm-up.
  for (int i = 0; i < 2 * pp_ranks_after; ++i) order.Forward(kDown);
  for (int i = 0; i < pp_rank + 1; ++i) {
    order.Forward(kDown);
    order.Forward(kUp);
  }
  // The first backwards are split, so that the previous stages get their gradients earlier.
  for (int i = 0; i < pp_ranks_after; ++i) {
    BackwardInputAndWeight(order, kUp);
    order.Forward(kUp);
  }
  // Steady state: the forward of one chunk with the backward of the other.
  for (int i = 0; i < spec.microbatches - 2 * spec.pp_ranks + pp_rank + 1; ++i) {
    order.Forward(kDown);
    order.Backward(kUp);
    order.Forward(kUp);
    order.Backward(kDown);
  }
  // Drain: no forward down is left. After this loop, no forward up is left, either.
  for (int i = 0; i < pp_ranks_after; ++i) {
    order.Backward(kUp);
    order.Forward(kUp);
    order.Backward(kDown);
  }
  // About half of the remaining backwards, up and down, are split. Their wgrads fill the waiting at
  // the end.
  int backwards = 0;
  const int full_backwards = pp_rank + 1;
  auto backward = [&](int chunk) {
    if (backwards++ < full_backwards) {
      order.Backward(chunk);
    } else {
      order.BackwardInput(chunk);
    }
  };
  for (int i = 0; i < pp_rank + 1; ++i) {
    backward(kUp);
    backward(kDown);
  }
  for (int i = 0; i < pp_ranks_after; ++i) {
    order.OldestBackwardWeight();
    backward(kDown);
  }
  while (order.has_pending_weights()) order.OldestBackwardWeight();
  return std::move(order).Take();
}

}  // namespace perseus::schedule
