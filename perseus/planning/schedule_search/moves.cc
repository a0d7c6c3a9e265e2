#include "perseus/planning/schedule_search/moves.h"

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

}  // namespace

std::vector<Move> MovesFor(int pp_ranks, int parts, bool has_weights) {
  std::vector<Move> moves;
  const auto add = [&](Move::What what, int length) {
    for (int half = 0; half < (parts == 1 ? 1 : 2); ++half) {
      for (int first = 0; first + half < parts || (half == 0 && first < parts); ++first) {
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
    if (has_weights) add(Move::What::kWeights, length);
  }
  return moves;
}

bool Apply(const Move& move, const MemoryLimit& limit, std::vector<RankPaths>& paths) {
  bool has_changed = false;
  for (int i = 0; i < move.pp_ranks; ++i) {
    const int pp_rank = move.first_pp_rank + i;
    RankPaths& rank = paths[At(pp_rank)];
    const RankPaths before = rank;
    const std::size_t all = rank.backwards.size();
    const std::size_t offset = move.half_later ? all / At(move.parts) / 2 : 0;
    const std::size_t begin = std::min(all, all * At(move.first) / At(move.parts) + offset);
    const std::size_t end = std::min(all, all * At(move.first + 1) / At(move.parts) + offset);
    Shift(move.what == Move::What::kForwards ? rank.forwards_before : rank.weights_before, begin,
          end, move.step);
    if (!Fit(rank, limit, pp_rank)) return false;
    has_changed = has_changed || rank != before;
  }
  return has_changed;
}

}  // namespace perseus::schedule_search
