// The changes of a schedule that the search tries.
#pragma once

#include <vector>

#include "perseus/planning/schedule_search/rank_paths.h"

namespace perseus::schedule_search {

// Runs `step` more (or fewer, if negative) forwards or wgrads before each backward in a window of
// the iteration, on neighboring pp_ranks.
struct Move {
  enum class What { kForwards, kWeights } what = What::kForwards;
  int first_pp_rank = 0;
  int pp_ranks = 1;
  // The window is the part [first / parts, (first + 1) / parts) of the backwards of a pp_rank, or,
  // if half_later, the same half a part later.
  int parts = 1;
  int first = 0;
  bool half_later = false;
  int step = 1;
};

// All moves with windows of this part of the iteration, in the order in which the search tries
// them. `has_weights`: the schedule has split backwards.
std::vector<Move> MovesFor(int pp_ranks, int parts, bool has_weights);

// Changes `paths` and keeps the limit. Returns whether that is possible and changes anything.
bool Apply(const Move& move, const MemoryLimit& limit, std::vector<RankPaths>& paths);

}  // namespace perseus::schedule_search
