// 1F1B with any warm-up: each pp_rank may start more forwards before its first backward.
#pragma once

#include <span>

#include "perseus/base/result.h"
#include "perseus/planning/schedule/schedule.h"

namespace perseus::schedule {

// pp_rank r runs in_flight[r] forwards, then a backward and a forward in turn, then the remaining
// backwards. So it holds the activations of in_flight[r] microbatches, or of all if there are
// fewer. GenerateSchedule's 1f1b is {R, R - 1, ..., 1} for R pp_ranks.
//
// Fails (kInput) without a pp_rank or a microbatch, if a number is below 1, and if a pp_rank has
// more in flight than the one before it: its warm-up would wait for forwards that the pp_rank
// before it runs only after a backward, so the schedule would deadlock.
Result<Schedule> GenerateWarmupSchedule(int microbatches, std::span<const int> in_flight);

}  // namespace perseus::schedule
