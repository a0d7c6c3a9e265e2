#include "perseus/planning/schedule/in_flight.h"

#include <algorithm>
#include <set>
#include <utility>

namespace perseus::schedule {

std::vector<std::int64_t> PeakActivations(const Schedule& schedule,
                                          std::span<const std::int64_t> size_of_stage,
                                          std::span<const std::int64_t> kept_of_stage) {
  std::vector<std::int64_t> peaks;
  for (const std::vector<Instruction>& order : schedule.pp_ranks) {
    std::set<std::pair<int, int>> recomputed;  // (stage, microbatch)
    for (const Instruction& instruction : order) {
      if (!kept_of_stage.empty() && instruction.kind == InstructionKind::kRecompute) {
        recomputed.emplace(instruction.stage, instruction.microbatch);
      }
    }
    std::int64_t held = 0;
    std::int64_t peak = 0;
    for (const Instruction& instruction : order) {
      const auto stage = static_cast<std::size_t>(instruction.stage);
      const bool keeps_part = recomputed.contains({instruction.stage, instruction.microbatch});
      const std::int64_t kept = keeps_part ? kept_of_stage[stage] : size_of_stage[stage];
      if (instruction.kind == InstructionKind::kForward) held += kept;
      if (instruction.kind == InstructionKind::kRecompute) held += size_of_stage[stage] - kept;
      peak = std::max(peak, held);
      if (instruction.kind == InstructionKind::kBackward ||
          instruction.kind == InstructionKind::kBackwardWeight) {
        held -= size_of_stage[stage];
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
