// The schedules in the shape of a V on R pp_ranks. Chunk 0 of pp_rank r is stage r, on the way down
// to the last pp_rank. Chunk 1 is stage 2R-1-r, on the way up to pp_rank 0.
#include <algorithm>

#include "perseus/planning/schedule/rank_order.h"

namespace perseus::schedule {
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

  // Warm-up: forwards down until the first microbatch comes back up, then down and up in turn, then
  // only up, each with its backward. So this pp_rank uses its memory and no more.
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
  // Steady state: the forward of one chunk next to the backward of the other.
  for (int i = 0; i < spec.microbatches - 2 * spec.pp_ranks + pp_rank + 1; ++i) {
    order.Forward(kDown);
    order.Backward(kUp);
    order.Forward(kUp);
    order.Backward(kDown);
  }
  // Drain: no forward down is left, and after this loop no forward up either.
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
