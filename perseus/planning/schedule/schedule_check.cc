#include "perseus/planning/schedule/schedule_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace perseus::schedule {
namespace {

using Kinds = std::uint8_t;  // One bit for each kind.

constexpr Kinds Bit(InstructionKind kind) {
  return static_cast<Kinds>(1U << static_cast<unsigned>(kind));
}
constexpr Kinds kForward = Bit(InstructionKind::kForward);
constexpr Kinds kBackward = Bit(InstructionKind::kBackward);
constexpr Kinds kInput = Bit(InstructionKind::kBackwardInput);
constexpr Kinds kWeight = Bit(InstructionKind::kBackwardWeight);

std::optional<ScheduleDefect> FindShapeDefect(const Schedule& schedule) {
  const int pp_ranks = static_cast<int>(schedule.pp_ranks.size());
  if (pp_ranks == 0 || schedule.microbatches < 1 || schedule.pp_rank_of_stage.empty()) {
    return ScheduleDefect{
        0, "the schedule is empty (it needs at least one pp_rank, stage and microbatch)"};
  }
  if (schedule.chunk_of_stage.size() != schedule.pp_rank_of_stage.size()) {
    return ScheduleDefect{
        0, fmt::format("{} stages have a pp_rank, but {} have a chunk (give both)",
                       schedule.pp_rank_of_stage.size(), schedule.chunk_of_stage.size())};
  }
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const int pp_rank = schedule.pp_rank_of_stage[static_cast<std::size_t>(stage)];
    if (pp_rank < 0 || pp_rank >= pp_ranks) {
      return ScheduleDefect{0, fmt::format("stage {} is on pp_rank {} (expected 0 to {})", stage,
                                           pp_rank, pp_ranks - 1)};
    }
  }
  return std::nullopt;
}

std::optional<std::string> FindInstructionDefect(const Schedule& schedule,
                                                 const Instruction& instruction, int pp_rank) {
  if (!IsComputation(instruction.kind)) {
    return fmt::format("a schedule has no fixed instruction such as {} (leave it out)",
                       Describe(instruction));
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
  if (home != pp_rank) {
    return fmt::format("{}: the stage is on pp_rank {} (move the instruction there)",
                       Describe(instruction), home);
  }
  return std::nullopt;
}

// Checks `kinds`, the instructions that a stage runs for one microbatch.
std::optional<std::string> FindKindsDefect(Kinds kinds, int stage, int microbatch) {
  auto missing = [&](InstructionKind kind) {
    return fmt::format("{} is missing (every stage runs every microbatch)",
                       Describe(Instruction{kind, stage, microbatch}));
  };
  if (!(kinds & kForward)) return missing(InstructionKind::kForward);
  if (kinds & kBackward) {
    if (!(kinds & (kInput | kWeight))) return std::nullopt;
    return fmt::format(
        "{} appears together with its own dgrad or wgrad (keep the full backward, or both parts)",
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
  for (const std::vector<Instruction>& pp_rank : schedule.pp_ranks) instructions += pp_rank.size();
  // If there are more pairs (stage, microbatch) than instructions, one of the first
  // instructions + 1 pairs has no instruction. So these pairs are enough for the check, and large
  // numbers in a file cannot exhaust the memory.
  const auto microbatches = static_cast<std::size_t>(schedule.microbatches);
  std::vector<Kinds> kinds_of_pair(
      std::min(schedule.pp_rank_of_stage.size() * microbatches, instructions + 1));
  for (int pp_rank = 0; pp_rank < static_cast<int>(schedule.pp_ranks.size()); ++pp_rank) {
    for (const Instruction& instruction : schedule.pp_ranks[static_cast<std::size_t>(pp_rank)]) {
      if (auto defect = FindInstructionDefect(schedule, instruction, pp_rank)) {
        return ScheduleDefect{pp_rank, *std::move(defect)};
      }
      const std::size_t pair = static_cast<std::size_t>(instruction.stage) * microbatches +
                               static_cast<std::size_t>(instruction.microbatch);
      if (pair >= kinds_of_pair.size()) continue;
      Kinds& kinds = kinds_of_pair[pair];
      if (kinds & Bit(instruction.kind)) {
        return ScheduleDefect{pp_rank,
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
