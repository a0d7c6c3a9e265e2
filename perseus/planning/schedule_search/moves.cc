#include "perseus/planning/schedule_search/moves.h"

#include <fmt/format.h>

#include <algorithm>

#include "perseus/base/index.h"

namespace perseus::schedule_search {
namespace {

// Adds `step` in the window. Fewer before a backward means at most as few before earlier ones; more
// means at least as many before later ones, which Fit ensures for the memory's sake.
void Shift(std::vector<int>& counts, std::size_t begin, std::size_t end, int step) {
  for (std::size_t i = begin; i < end; ++i) counts[i] += step;
  if (begin == end) return;
  for (std::size_t i = 0; i < begin; ++i) counts[i] = std::min(counts[i], counts[begin]);
  for (std::size_t i = end; i < counts.size(); ++i) {
    counts[i] = std::max(counts[i], counts[end - 1]);
  }
}

// The numbers that the move changes, and their range. They are independent of each other.
struct Independent {
  std::vector<int>& numbers;
  int least;
  int most;
};

Independent NumbersOf(Move::What what, const Choices& choices, RankPaths& rank) {
  if (what == Move::What::kRecomputes) return {rank.has_recompute, 0, 1};
  return {rank.weight_delay, choices.has_full_backwards ? kFullBackward : 0,
          static_cast<int>(2 * rank.backwards.size())};
}

}  // namespace

Choices ChoicesOf(const profile::Profile& profile) {
  const auto has_everywhere = [&](InstructionKind kind) {
    for (int stage = 0; stage < profile.stages(); ++stage) {
      for (int chunk = 0; chunk < profile.chunks(); ++chunk) {
        if (profile.Find(stage, chunk, kind) == nullptr) return false;
      }
    }
    return true;
  };
  return {.has_full_backwards = has_everywhere(InstructionKind::kBackward),
          .has_split_backwards = has_everywhere(InstructionKind::kBackwardInput) &&
                                 has_everywhere(InstructionKind::kBackwardWeight),
          .has_recomputes = has_everywhere(InstructionKind::kRecompute),
          .has_chunks = profile.chunks() > 1};
}

std::string DescribeGaps(const profile::Profile& profile) {
  std::string text;
  for (const InstructionKind kind :
       {InstructionKind::kBackward, InstructionKind::kBackwardInput,
        InstructionKind::kBackwardWeight, InstructionKind::kRecompute}) {
    bool is_somewhere = false;
    std::string missing;
    for (int stage = 0; stage < profile.stages(); ++stage) {
      for (int chunk = 0; chunk < profile.chunks(); ++chunk) {
        const bool has = profile.Find(stage, chunk, kind) != nullptr;
        is_somewhere = is_somewhere || has;
        if (has || !missing.empty()) continue;
        missing = fmt::format("stage {}", stage);
        if (profile.chunks() > 1) missing += fmt::format(", chunk {}", chunk);
      }
    }
    if (!is_somewhere || missing.empty()) continue;
    text += fmt::format(
        "No schedule has {} instructions, because {} lacks those of {} (profile all stages).\n",
        Name(kind), profile.name(), missing);
  }
  return text;
}

std::vector<Move> MovesFor(int pp_ranks, int parts, const Choices& choices) {
  std::vector<Move> moves;
  const auto add = [&](Move::What what, int length) {
    for (int half = 0; half < (parts == 1 ? 1 : 2); ++half) {
      for (int first = 0; first < parts - half; ++first) {
        for (int pp_rank = 0; pp_rank + length <= pp_ranks; ++pp_rank) {
          for (const int step : {1, -1}) {
            moves.push_back({.what = what,
                             .first_pp_rank = pp_rank,
                             .pp_ranks = length,
                             .parts = parts,
                             .first = first,
                             .half_later = half == 1,
                             .step = step});
          }
        }
      }
    }
  };
  for (int length = pp_ranks; length >= 1; length = length == 1 ? 0 : (length + 1) / 2) {
    add(Move::What::kForwards, length);
    if (choices.has_split_backwards) add(Move::What::kWeights, length);
    if (choices.has_recomputes) add(Move::What::kRecomputes, length);
    if (choices.has_chunks) {
      add(Move::What::kForwardStages, length);
      add(Move::What::kBackwardStages, length);
    }
  }
  return moves;
}

bool Apply(const Move& move, const MemoryLimit& limit, const Choices& choices,
           std::vector<RankPaths>& paths) {
  bool has_changed = false;
  for (int i = 0; i < move.pp_ranks; ++i) {
    const int pp_rank = move.first_pp_rank + i;
    RankPaths& rank = paths[At(pp_rank)];
    const RankPaths before = rank;
    const std::size_t all = rank.backwards.size();
    const std::size_t offset = move.half_later ? all / At(move.parts) / 2 : 0;
    const std::size_t begin = std::min(all, all * At(move.first) / At(move.parts) + offset);
    const std::size_t end = std::min(all, all * At(move.first + 1) / At(move.parts) + offset);
    if (move.what == Move::What::kForwards) {
      Shift(rank.forwards_before, begin, end, move.step);
    } else if (move.what == Move::What::kForwardStages ||
               move.what == Move::What::kBackwardStages) {
      const Sequence sequence =
          move.what == Move::What::kForwardStages ? Sequence::kForwards : Sequence::kBackwards;
      SwapStages(rank, sequence, begin, end, move.step > 0);
    } else {
      const auto [numbers, least, most] = NumbersOf(move.what, choices, rank);
      for (std::size_t k = begin; k < end; ++k) {
        numbers[k] = std::clamp(numbers[k] + move.step, least, most);
      }
    }
    const GivesWay gives_way =
        move.what == Move::What::kForwards ? GivesWay::kWeights : GivesWay::kForwards;
    if (!Fit(rank, limit, pp_rank, gives_way)) return false;
    has_changed = has_changed || rank != before;
  }
  return has_changed;
}

}  // namespace perseus::schedule_search
