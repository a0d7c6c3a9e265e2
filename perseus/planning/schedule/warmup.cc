#include "perseus/planning/schedule/warmup.h"

#include <algorithm>

#include "perseus/planning/schedule/rank_order.h"

namespace perseus::schedule {

Result<Schedule> GenerateWarmupSchedule(int microbatches, std::span<const int> in_flight) {
  if (microbatches < 1)
    return Fail("a schedule of {} microbatches (give at least 1)", microbatches);
  if (in_flight.empty()) return Fail("a schedule without pp_ranks (give one number for each)");
  Schedule schedule;
  schedule.name = "1f1b-warmup";
  schedule.microbatches = microbatches;
  int before = microbatches;
  for (int pp_rank = 0; pp_rank < static_cast<int>(in_flight.size()); ++pp_rank) {
    const int given = in_flight[static_cast<std::size_t>(pp_rank)];
    if (given < 1) {
      return Fail("pp_rank {}: {} microbatches in flight (give at least 1)", pp_rank, given);
    }
    const int warmup = std::min(given, microbatches);
    if (warmup > before) {
      return Fail(
          "pp_rank {}: {} microbatches in flight, but pp_rank {} has only {} (a pp_rank needs at "
          "least as many as the next one, or the schedule deadlocks)",
          pp_rank, given, pp_rank - 1, before);
    }
    before = warmup;
    RankOrder order({pp_rank});
    for (int i = 0; i < warmup; ++i) order.Forward(0);
    for (int i = 0; i < microbatches; ++i) {
      order.Backward(0);
      if (warmup + i < microbatches) order.Forward(0);
    }
    schedule.pp_ranks.push_back(std::move(order).Take());
    schedule.pp_rank_of_stage.push_back(pp_rank);
    schedule.chunk_of_stage.push_back(0);
  }
  return schedule;
}

}  // namespace perseus::schedule
