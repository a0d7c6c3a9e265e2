// The changes of a schedule that the search tries.
#pragma once

#include <string>
#include <vector>

#include "perseus/planning/schedule_search/rank_paths.h"
#include "perseus/planning/schedule_search/search.h"

namespace perseus::schedule_search {

// Adds `step` to a number of each backward in a window of the iteration, on neighboring pp_ranks:
// the forwards before it, the delay of its wgrad, or whether it has a recompute.
struct Move {
  // With several stages on each pp_rank, also which one's forwards, or backwards, come first.
  enum class What {
    kForwards,
    kWeights,
    kRecomputes,
    kForwardStages,
    kBackwardStages
  } what = What::kForwards;
  int first_pp_rank = 0;
  int pp_ranks = 1;
  // The window is the part [first / parts, (first + 1) / parts) of the backwards of a pp_rank, or,
  // if half_later, the same half a part later.
  int parts = 1;
  int first = 0;
  bool half_later = false;
  int step = 1;
};

// The numbers that the instructions of a profile permit. With neither full nor split backwards,
// there is no choice.
struct Choices {
  bool has_full_backwards = false;
  bool has_split_backwards = false;
  bool has_recomputes = false;
  bool has_chunks = false;  // Several stages on each pp_rank.
};
Choices ChoicesOf(const profile::Profile& profile);

// The instructions that only some stages have, so that no schedule uses them, in sentences. Empty
// if there are none.
std::string DescribeGaps(const profile::Profile& profile);

// All moves with windows of this part of the iteration, in the order in which the search tries
// them.
std::vector<Move> MovesFor(int pp_ranks, int parts, const Choices& choices);

// Changes `paths` and keeps the limit. Returns whether that is possible and changes anything.
bool Apply(const Move& move, const MemoryLimit& limit, const Choices& choices,
           std::vector<RankPaths>& paths);

}  // namespace perseus::schedule_search
