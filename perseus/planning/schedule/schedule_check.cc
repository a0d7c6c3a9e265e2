#include "perseus/planning/schedule/schedule_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace perseus::schedule {
namespace {

using Kinds = std::uint8_t;  // A bit for each kind of computation.

constexpr Kinds Bit(InstructionKind kind) {
  return static_cast<Kinds>(1U << static_cast<unsigned>(kind));
}
constexpr Kinds kForward = Bit(InstructionKind::kForward);
constexpr Kinds kBackward = Bit(InstructionKind::kBackward);
constexpr Kinds kInput = Bit(InstructionKind::kBackwardInput);
constexpr Kinds kWeight = Bit(InstructionKind::kBackwardWeight);

std::optional<ScheduleDefect> FindShapeDefect(const Schedule& schedule) {
  const int ranks = static_cast<int>(schedule.ranks.size());
  if (ranks == 0 || schedule.microbatches < 1 || schedule.pp_rank_of_stage.empty()) {
    return ScheduleDefect{0, "nothing to compute (give at least one rank, stage and microbatch)"};
  }
  if (schedule.chunk_of_stage.size() != schedule.pp_rank_of_stage.size()) {
    return ScheduleDefect{
        0, fmt::format("{} stages have a rank but {} have a chunk (give both)",
                       schedule.pp_rank_of_stage.size(), schedule.chunk_of_stage.size())};
  }
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const int rank = schedule.pp_rank_of_stage[static_cast<std::size_t>(stage)];
    if (rank < 0 || rank >= ranks) {
      return ScheduleDefect{0, fmt::format("stage {} lives on pp_rank {} (expected 0 to {})", stage,
                                           rank, ranks - 1)};
    }
  }
  return std::nullopt;
}

std::optional<std::string> FindInstructionDefect(const Schedule& schedule,
                                                 const Instruction& instruction, int rank) {
  if (!IsComputation(instruction.kind)) {
    return fmt::format("{} is no computation (leave it out)", Describe(instruction));
  }
  if (instruction.stage < 0 || instruction.stage >= schedule.stages()) {
    return fmt::format("{}: no such stage (expected 0 to {})", Describe(instruction),
                       schedule.stages() - 1);
  }
  if (instruction.microbatch < 0 || instruction.microbatch >= schedule.microbatches) {
    return fmt::format("{}: no such microbatch (expected 0 to {})", Describe(instruction),
                       schedule.microbatches - 1);
  }
  const int home = schedule.pp_rank_of_stage[static_cast<std::size_t>(instruction.stage)];
  if (home != rank) {
    return fmt::format("{}: the stage lives on pp_rank {} (move it there)", Describe(instruction),
                       home);
  }
  return std::nullopt;
}

// What `kinds`, those that a stage runs for a microbatch, lack or have too many.
std::optional<std::string> FindKindsDefect(Kinds kinds, int stage, int microbatch) {
  auto missing = [&](InstructionKind kind) {
    return fmt::format("{} is missing (every stage runs every microbatch)",
                       Describe(Instruction{kind, stage, microbatch}));
  };
  if (!(kinds & kForward)) return missing(InstructionKind::kForward);
  if (kinds & kBackward) {
    if (!(kinds & (kInput | kWeight))) return std::nullopt;
    return fmt::format(
        "{} stands beside its own dgrad or wgrad (keep the full backward or both "
        "parts)",
        Describe(Instruction{InstructionKind::kBackward, stage, microbatch}));
  }
  if (!(kinds & (kInput | kWeight))) return missing(InstructionKind::kBackward);
  if (!(kinds & kInput)) return missing(InstructionKind::kBackwardInput);
  if (!(kinds & kWeight)) return missing(InstructionKind::kBackwardWeight);
  return std::nullopt;
}

}  // namespace

std::string Describe(const Instruction& instruction) {
  return fmt::format("{} of microbatch {} (stage {})", Name(instruction.kind),
                     instruction.microbatch, instruction.stage);
}

std::optional<ScheduleDefect> FindDefect(const Schedule& schedule) {
  if (auto defect = FindShapeDefect(schedule)) return defect;

  std::size_t instructions = 0;
  for (const std::vector<Instruction>& rank : schedule.ranks) instructions += rank.size();
  // If there are more (stage, microbatch) pairs than instructions, a pair among the first
  // instructions + 1 has none; so no more need be looked at, and numbers out of a file cannot
  // exhaust the memory.
  const auto microbatches = static_cast<std::size_t>(schedule.microbatches);
  std::vector<Kinds> kinds_of_pair(
      std::min(schedule.pp_rank_of_stage.size() * microbatches, instructions + 1));
  for (int rank = 0; rank < static_cast<int>(schedule.ranks.size()); ++rank) {
    for (const Instruction& instruction : schedule.ranks[static_cast<std::size_t>(rank)]) {
      if (auto defect = FindInstructionDefect(schedule, instruction, rank)) {
        return ScheduleDefect{rank, *std::move(defect)};
      }
      const std::size_t pair = static_cast<std::size_t>(instruction.stage) * microbatches +
                               static_cast<std::size_t>(instruction.microbatch);
      if (pair >= kinds_of_pair.size()) continue;
      Kinds& kinds = kinds_of_pair[pair];
      if (kinds & Bit(instruction.kind)) {
        return ScheduleDefect{rank,
                              fmt::format("{} appears twice (remove one)", Describe(instruction))};
      }
      kinds = static_cast<Kinds>(kinds | Bit(instruction.kind));
    }
  }
  for (std::size_t pair = 0; pair < kinds_of_pair.size(); ++pair) {
    const std::size_t stage = pair / microbatches;
    if (auto defect = FindKindsDefect(kinds_of_pair[pair], static_cast<int>(stage),
                                      static_cast<int>(pair % microbatches))) {
      return ScheduleDefect{schedule.pp_rank_of_stage[stage], *std::move(defect)};
    }
  }
  return std::nullopt;
}

}  // namespace perseus::schedule
