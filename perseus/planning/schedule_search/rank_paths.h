// The order of one pp_rank as the search sees it: three sequences, and how they interleave.
//
// A pp_rank runs its forwards in some order, its backwards (or dgrads) in some order, and its
// wgrads in some order. The search keeps these three sequences of a known schedule, and changes
// only how they interleave: how many forwards and how many wgrads come before each backward. Both
// numbers never fall from one backward to the next.
//
//     F0 F1 F2 B0 F3 B1 B2 B3      forwards_before = 3 4 5 6
//
// After the last forward, the number goes on as if there were more, and before the first wgrad, it
// is negative. So "one fewer in flight" means the same everywhere: 2 3 4 5, which is
// F0 F1 B0 F2 B1 F3 B2 B3.
//
// For one stage on each pp_rank, this is every order that matters. All microbatches are alike, so
// the k-th forward of a stage can be that of microbatch k, and so can its k-th backward. A schedule
// with another order of microbatches becomes such a schedule, with the same times, if each stage
// renumbers them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/planning/schedule/schedule.h"

namespace perseus::schedule_search {

struct RankPaths {
  std::vector<schedule::Instruction> forwards;
  std::vector<schedule::Instruction> backwards;  // Full backwards and dgrads.
  std::vector<schedule::Instruction> weights;    // The wgrads of the dgrads.
  std::vector<bool> has_recompute;               // [backward] A recompute comes directly before it.
  std::vector<int> forwards_before;  // [backward] All forwards if it is above their number.
  std::vector<int> weights_before;   // [backward] None if it is negative.

  // Derived, and constant: what comes before a backward in any order that can run.
  std::vector<int> least_forwards_before;  // [backward] Its own forward, and those before that one.
  std::vector<int> most_weights_before;    // [backward] The wgrads whose dgrads come before it.

  bool operator==(const RankPaths&) const = default;
};

// Requires a schedule without defect (schedule_check.h).
std::vector<RankPaths> PathsOf(const schedule::Schedule& schedule);

// Writes the order of every pp_rank into `schedule`, which has the same stages. Between two
// backwards, wgrads come before forwards, because they free memory.
void SetOrders(std::span<const RankPaths> paths, schedule::Schedule& schedule);

// The activations that a pp_rank may hold, and the size of those of a microbatch on each stage.
struct MemoryLimit {
  std::vector<std::int64_t> of_pp_rank;
  std::vector<std::int64_t> size_of_stage;
};

// Delays forwards until the pp_rank keeps its limit, runs wgrads earlier where a forward cannot
// wait, and repairs numbers that a change has brought out of order. Returns whether that is
// possible: false if a backward needs more forwards before it than fit.
bool Fit(RankPaths& paths, const MemoryLimit& limit, int pp_rank);

}  // namespace perseus::schedule_search
