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
  if (ranks == 0 || schedule.microbatches < 1 || schedule.rank_of_stage.empty()) {
    return ScheduleDefect{0, "nothing to compute (give at least one rank, stage and microbatch)"};
  }
  if (schedule.chunk_of_stage.size() != schedule.rank_of_stage.size()) {
    return ScheduleDefect{
        0, fmt::format("{} stages have a rank but {} have a chunk (give both)",
                       schedule.rank_of_stage.size(), schedule.chunk_of_stage.size())};
  }
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const int rank = schedule.rank_of_stage[static_cast<std::size_t>(stage)];
    if (rank < 0 || rank >= ranks) {
      return ScheduleDefect{
          0, fmt::format("stage {} lives on rank {} (expected 0 to {})", stage, rank, ranks - 1)};
    }
  }
  return std::nullopt;
}

std::optional<std::string> FindActionDefect(const Schedule& schedule, const Action& action,
                                            int rank) {
  if (!IsComputation(action.kind)) {
    return fmt::format("{} is no computation (leave it out)", Describe(action));
  }
  if (action.stage < 0 || action.stage >= schedule.stages()) {
    return fmt::format("{}: no such stage (expected 0 to {})", Describe(action),
                       schedule.stages() - 1);
  }
  if (action.microbatch < 0 || action.microbatch >= schedule.microbatches) {
    return fmt::format("{}: no such microbatch (expected 0 to {})", Describe(action),
                       schedule.microbatches - 1);
  }
  const int home = schedule.rank_of_stage[static_cast<std::size_t>(action.stage)];
  if (home != rank) {
    return fmt::format("{}: the stage lives on rank {} (move it there)", Describe(action), home);
  }
  return std::nullopt;
}

// What `kinds`, those that a stage runs for a microbatch, lack or have too many.
std::optional<std::string> FindKindsDefect(Kinds kinds, int stage, int microbatch) {
  auto missing = [&](InstructionKind kind) {
    return fmt::format("{} is missing (every stage runs every microbatch)",
                       Describe(Action{kind, stage, microbatch}));
  };
  if (!(kinds & kForward)) return missing(InstructionKind::kForward);
  if (kinds & kBackward) {
    if (!(kinds & (kInput | kWeight))) return std::nullopt;
    return fmt::format(
        "{} stands beside its own dgrad or wgrad (keep the full backward or both "
        "parts)",
        Describe(Action{InstructionKind::kBackward, stage, microbatch}));
  }
  if (!(kinds & (kInput | kWeight))) return missing(InstructionKind::kBackward);
  if (!(kinds & kInput)) return missing(InstructionKind::kBackwardInput);
  if (!(kinds & kWeight)) return missing(InstructionKind::kBackwardWeight);
  return std::nullopt;
}

}  // namespace

std::string Describe(const Action& action) {
  return fmt::format("{} of microbatch {} (stage {})", Name(action.kind), action.microbatch,
                     action.stage);
}

std::optional<ScheduleDefect> FindDefect(const Schedule& schedule) {
  if (auto defect = FindShapeDefect(schedule)) return defect;

  std::size_t actions = 0;
  for (const std::vector<Action>& rank : schedule.ranks) actions += rank.size();
  // If there are more (stage, microbatch) pairs than actions, a pair among the first actions + 1
  // has none; so no more need be looked at, and numbers out of a file cannot exhaust the memory.
  const auto microbatches = static_cast<std::size_t>(schedule.microbatches);
  std::vector<Kinds> kinds_of_pair(
      std::min(schedule.rank_of_stage.size() * microbatches, actions + 1));
  for (int rank = 0; rank < static_cast<int>(schedule.ranks.size()); ++rank) {
    for (const Action& action : schedule.ranks[static_cast<std::size_t>(rank)]) {
      if (auto defect = FindActionDefect(schedule, action, rank)) {
        return ScheduleDefect{rank, *std::move(defect)};
      }
      const std::size_t pair = static_cast<std::size_t>(action.stage) * microbatches +
                               static_cast<std::size_t>(action.microbatch);
      if (pair >= kinds_of_pair.size()) continue;
      Kinds& kinds = kinds_of_pair[pair];
      if (kinds & Bit(action.kind)) {
        return ScheduleDefect{rank, fmt::format("{} stands twice (remove one)", Describe(action))};
      }
      kinds = static_cast<Kinds>(kinds | Bit(action.kind));
    }
  }
  for (std::size_t pair = 0; pair < kinds_of_pair.size(); ++pair) {
    const std::size_t stage = pair / microbatches;
    if (auto defect = FindKindsDefect(kinds_of_pair[pair], static_cast<int>(stage),
                                      static_cast<int>(pair % microbatches))) {
      return ScheduleDefect{schedule.rank_of_stage[stage], *std::move(defect)};
    }
  }
  return std::nullopt;
}

}  // namespace perseus::schedule
