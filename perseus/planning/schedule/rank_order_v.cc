// The schedules that fold into a V: chunk 0 of rank r is stage r on the way down, chunk 1 is stage
// 2R-1-r on the way up.
#include <algorithm>

#include "perseus/planning/schedule/rank_order.h"

namespace perseus::schedule {
namespace {

constexpr int kDown = 0;
constexpr int kUp = 1;

RankOrder VOrder(const ScheduleSpec& spec, int rank) {
  return RankOrder({rank, 2 * spec.ranks - 1 - rank});
}

void BackwardInputAndWeight(RankOrder& order, int chunk) {
  order.BackwardInput(chunk);
  order.BackwardWeight(chunk);
}

}  // namespace

std::vector<Instruction> ZbVOrder(const ScheduleSpec& spec, int rank) {
  // The pattern is only whole with 2R-1 microbatches. With fewer it is laid out for 2R-1, and the
  // microbatches that do not exist are left out.
  const int microbatches = std::max(spec.microbatches, 2 * spec.ranks - 1);
  const int ranks_after = spec.ranks - 1 - rank;
  RankOrder order = VOrder(spec, rank);

  // Warm up: go down until the first microbatch comes back up, then alternate down and up, then
  // only up, each with its backward, so that this rank fills its memory and no more.
  for (int i = 0; i < 2 * ranks_after + 1; ++i) order.Forward(kDown);
  for (int i = 0; i < rank; ++i) {
    order.Forward(kUp);
    order.Forward(kDown);
  }
  for (int i = 0; i < ranks_after + 1; ++i) {
    order.Forward(kUp);
    BackwardInputAndWeight(order, kUp);
  }
  // Steady: a forward, a dgrad and a wgrad of each chunk.
  while (order.forwards(kUp) < microbatches) {
    if (order.forwards(kDown) < microbatches) order.Forward(kDown);
    BackwardInputAndWeight(order, kDown);
    order.Forward(kUp);
    BackwardInputAndWeight(order, kUp);
  }
  // Drain: dgrads first, since other ranks wait for them; wgrads fill what waiting remains.
  for (int i = 0; i < rank; ++i) {
    order.BackwardInput(kDown);
    order.BackwardInput(kUp);
  }
  for (int i = 0; i < ranks_after + 1; ++i) {
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

std::vector<Instruction> DualPipeVOrder(const ScheduleSpec& spec, int rank) {
  const int ranks_after = spec.ranks - 1 - rank;
  RankOrder order = VOrder(spec, rank);

  // Warm up.
  for (int i = 0; i < 2 * ranks_after; ++i) order.Forward(kDown);
  for (int i = 0; i < rank + 1; ++i) {
    order.Forward(kDown);
    order.Forward(kUp);
  }
  // The first gradients are split, so that the ranks below get theirs sooner.
  for (int i = 0; i < ranks_after; ++i) {
    BackwardInputAndWeight(order, kUp);
    order.Forward(kUp);
  }
  // Steady: the forward of one chunk beside the backward of the other.
  for (int i = 0; i < spec.microbatches - 2 * spec.ranks + rank + 1; ++i) {
    order.Forward(kDown);
    order.Backward(kUp);
    order.Forward(kUp);
    order.Backward(kDown);
  }
  // Drain: down there is nothing left to forward; then nothing up either.
  for (int i = 0; i < ranks_after; ++i) {
    order.Backward(kUp);
    order.Forward(kUp);
    order.Backward(kDown);
  }
  // Half of what remains up and down is split: those wgrads wait, and fill the end.
  int backwards = 0;
  const int full_backwards = rank + 1;
  auto backward = [&](int chunk) {
    if (backwards++ < full_backwards) {
      order.Backward(chunk);
    } else {
      order.BackwardInput(chunk);
    }
  };
  for (int i = 0; i < rank + 1; ++i) {
    backward(kUp);
    backward(kDown);
  }
  for (int i = 0; i < ranks_after; ++i) {
    order.OldestBackwardWeight();
    backward(kDown);
  }
  while (order.has_pending_weights()) order.OldestBackwardWeight();
  return std::move(order).Take();
}

}  // namespace perseus::schedule
