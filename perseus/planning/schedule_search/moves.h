// The changes of a schedule that the search tries.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule/schedule.h"

namespace perseus::schedule_search {

// The order of one pp_rank, in the form that the search changes: a sequence of forwards, a sequence
// of backwards, and how the two interleave.
//
// The search begins with both sequences of a known schedule. It changes three things: how many
// forwards come before each backward, whether a backward is split, and when the wgrad of a split
// backward runs.
//
//     F0 F1 F2 B0 F3 B1 B2 B3              forwards_before = 3 4 5 6
//
// The number of forwards never falls from one backward to the next. After the last forward, the
// number continues to rise as if there were more forwards. So "one less in flight" means the same
// everywhere: 2 3 4 5, which is F0 F1 B0 F2 B1 F3 B2 B3.
//
// The wgrad of a backward has a delay, in half steps. With an even number, the wgrad is before the
// forwards between two backwards. With an odd number, it is after these forwards. -1 means a full
// backward.
//
//     F0 I0 W0 F1 I1                       weight_delay = 0 ...
//     F0 I0 F1 W0 I1                       weight_delay = 1 ...
//     F0 I0 F1 I1 W0                       weight_delay = 2 ...
//
// A backward may have a recompute directly before it. A recompute needs nothing from other
// pp_ranks, so it runs while the pp_rank would otherwise wait for the gradient.
//
// With several stages on a pp_rank, the sequences may change, too: neighbors of different stages
// are swapped. Some of the resulting orders cannot run.
//
// With one stage on each pp_rank, these are all orders that matter. All microbatches are alike. So
// the k-th forward of a stage can be the one of microbatch k, and so can the k-th backward. If a
// schedule has another order of microbatches, each stage can renumber them, with the same times.
inline constexpr int kFullBackward = -1;  // The weight_delay of a full backward.

struct RankPaths {
  std::vector<schedule::Instruction> forwards;
  std::vector<schedule::Instruction> backwards;  // All of them as full backwards, even if split.
  std::vector<int> forwards_before;              // [backward] May exceed the number of forwards.
  std::vector<int> weight_delay;                 // [backward] In half steps, or kFullBackward.
  std::vector<int> has_recompute;                // [backward] 1 or 0.

  // Computed from the two sequences. In any order that can run, a backward comes after its own
  // forward and all earlier forwards.
  std::vector<int> least_forwards_before;  // [backward]
  std::vector<int> backward_of_forward;    // [forward]

  bool operator==(const RankPaths&) const = default;
};

// Requires a schedule without defect (schedule.h).
std::vector<RankPaths> PathsOf(const schedule::Schedule& schedule);

// Writes the order of every pp_rank into `schedule`, which has the same stages.
void SetOrders(std::span<const RankPaths> paths, schedule::Schedule& schedule);

inline constexpr double kBytesPerGib = 1 << 30;

// The activations that a pp_rank may hold, and the size of the activations of a microbatch on each
// stage.
struct MemoryLimit {
  std::vector<std::int64_t> of_pp_rank = {};
  std::vector<std::int64_t> size_of_stage = {};
  // The part of the activations that stays until a recompute. Empty: all stay.
  std::vector<std::int64_t> kept_of_stage = {};
  enum class Unit { kMicrobatches, kBytes } unit = Unit::kMicrobatches;  // For messages.
};

// Swaps neighbors of different stages in the part [begin, end) of a sequence. With `later_first`,
// instructions of a later stage move one place to the front. Otherwise, instructions of an earlier
// stage move one place to the front.
enum class Sequence { kForwards, kBackwards };
void SwapStages(RankPaths& paths, Sequence sequence, std::size_t begin, std::size_t end,
                bool later_first);

// The instructions that move if the memory is not sufficient.
enum class GivesWay { kForwards, kWeights };

// Makes a pp_rank keep its memory limit: delays forwards, or runs wgrads earlier. (If a forward
// cannot wait, wgrads run earlier in any case.) A change may have broken the rule that numbers
// never fall: repairs this, too. Returns false if this is impossible, because a backward needs more
// forwards before it than the memory permits.
bool Fit(RankPaths& paths, const MemoryLimit& limit, int pp_rank, GivesWay gives_way);

// A change of the search. It adds `step` to one number of each backward in a window of the
// iteration, on neighboring pp_ranks. The number is the count of forwards before the backward, the
// delay of its wgrad, or whether it has a recompute.
struct Move {
  // With several stages on each pp_rank, the move may also change which stage comes first in the
  // forwards or the backwards.
  enum class What {
    kForwards,
    kWeights,
    kRecomputes,
    kForwardStages,
    kBackwardStages
  } what = What::kForwards;
  int first_pp_rank = 0;
  int pp_ranks = 1;
  // The window is the part [first / parts, (first + 1) / parts) of the backwards of a pp_rank. If
  // half_later is true, the window begins and ends half a part later.
  int parts = 1;
  int first = 0;
  bool half_later = false;
  int step = 1;
};

// The changes that the instructions of a profile permit. If the profile has neither full nor split
// backwards, no change is possible.
struct Choices {
  bool has_full_backwards = false;
  bool has_split_backwards = false;
  bool has_recomputes = false;
  bool has_chunks = false;  // Several stages on each pp_rank.
};
Choices ChoicesOf(const profile::Profile& profile);

// Lists, in sentences, the instructions that only some stages have. No schedule uses these. Empty
// if there are none.
std::string DescribeGaps(const profile::Profile& profile);

// All moves with windows of this part of the iteration, in the order in which the search tries
// them.
std::vector<Move> MovesFor(int pp_ranks, int parts, const Choices& choices);

// Changes `paths` and keeps the memory limit. Returns false if this is impossible, or if it changes
// nothing.
bool Apply(const Move& move, const MemoryLimit& limit, const Choices& choices,
           std::vector<RankPaths>& paths);

}  // namespace perseus::schedule_search
