#include "perseus/planning/schedule/in_flight.h"

#include <algorithm>

namespace perseus::schedule {

std::vector<std::int64_t> PeakActivations(const Schedule& schedule,
                                          std::span<const std::int64_t> size_of_stage) {
  std::vector<std::int64_t> peaks;
  for (const std::vector<Instruction>& order : schedule.pp_ranks) {
    std::int64_t held = 0;
    std::int64_t peak = 0;
    for (const Instruction& instruction : order) {
      const std::int64_t size = size_of_stage[static_cast<std::size_t>(instruction.stage)];
      if (instruction.kind == InstructionKind::kForward) held += size;
      peak = std::max(peak, held);
      if (instruction.kind == InstructionKind::kBackward ||
          instruction.kind == InstructionKind::kBackwardWeight) {
        held -= size;
      }
    }
    peaks.push_back(peak);
  }
  return peaks;
}

std::vector<std::int64_t> PeakInFlight(const Schedule& schedule) {
  return PeakActivations(schedule, std::vector<std::int64_t>(schedule.pp_rank_of_stage.size(), 1));
}

}  // namespace perseus::schedule
