// Random moves for a search over rings (ring.h): new rings for one or several pp_ranks.
//
//   - A segment gets another clock, or segments of two pp_ranks get another clock in opposite
//     directions.
//   - A boundary between two segments, or both ends of a segment, move along the iteration.
//   - A segment splits, or becomes a part of a neighbor. If a split makes too many segments,
//     another segment is removed.
//   - A segment becomes two, a faster and a slower one, which together take as long as before.
//   - A pp_rank takes a ring that was offered (Offer).
//
// Good plans change clocks at about the same microbatch on all pp_ranks. So most kinds of moves
// often change several neighboring pp_ranks at once. On each of these pp_ranks, they change the
// segment that is nearest to the same place in the iteration. A tenth of the moves consist of two
// moves.
//
// Why a segment becomes two: in the steady state, each pp_rank has to run a microbatch within one
// period. Clocks are coarse, so a single clock leaves slack in each period. Two clocks use this
// slack: in one part of the iteration, the period is shorter than before, and in the other part it
// is longer. This works only if all pp_ranks have the shorter period at the same time. Smaller
// moves do not lead to this state: until all pp_ranks have changed, the plan is late or costs more.
// So one move also changes the other pp_ranks, and gives them clocks that fit the same periods.
//
// Thread safety: one thread at a time.
#pragma once

#include <span>
#include <vector>

#include "perseus/base/random.h"
#include "perseus/planning/few_switches/rank_clocks.h"
#include "perseus/planning/few_switches/ring.h"

namespace perseus::few_switches {

class RingMoves {
 public:
  struct Proposal {
    int pp_rank = 0;
    Ring ring;
  };

  // Keeps a reference to `ranks`.
  explicit RingMoves(const std::vector<RankClocks>& ranks);

  // The pp_ranks that have instructions with a choice of clocks.
  const std::vector<int>& movable() const { return movable_; }
  SplitMix64& random() { return random_; }

  // Offers a ring for each pp_rank. Requires measured clocks.
  void Offer(const std::vector<Ring>& rings);
  void ForgetOffers() { offered_.clear(); }

  // A random move from `rings` ([pp_rank]): for each pp_rank at most one new ring, with at most
  // max(most_changes, 1) segments. Returns an empty span if the chosen move is impossible. New
  // rings may have unmeasured clocks. The span is valid until the next call. Requires a movable
  // pp_rank.
  std::span<Proposal> Propose(const std::vector<Ring>& rings, int most_changes);

  // The ring of the pp_rank after the latest move, or its ring in `rings` if the move does not
  // change it.
  const Ring& RingOf(const std::vector<Ring>& rings, int pp_rank) const;
  // Extends the latest move: `segment` of this pp_rank also gets `clock`. Returns the whole move.
  std::span<Proposal> AddClock(const std::vector<Ring>& rings, int pp_rank, std::size_t segment,
                               int clock);

  // Returns the rings after each possible mix. In a mix, the longest segment of a pp_rank becomes
  // two, with clocks near its own. All other pp_ranks that have room for one more segment change
  // with it. The rings may have unmeasured clocks.
  std::vector<std::vector<Ring>> Mixes(const std::vector<Ring>& rings, int most_changes);

 private:
  enum class Kind { kClock, kBoundary, kShift, kSplit, kRemove };
  struct Move {
    double place = 0;  // Where the move is: a fraction of the iteration.
    Kind kind = Kind::kClock;
    int amount = 0;
  };

  void ProposePart(const std::vector<Ring>& rings, int most_changes);
  // The `segment` of the pp_rank `lead` becomes two, with the clocks `left` and `right`, which
  // together take the same time. The pp_ranks from `from` to `last` change with it. All pp_ranks
  // are indices into movable_.
  struct Mixture {
    int lead = 0;
    std::size_t segment = 0;
    int left = 0;
    int right = 0;
    int from = 0;
    int last = 0;
  };
  void Mix(const std::vector<Ring>& rings, const Mixture& mix, int most_changes);
  void ProposeMix(const std::vector<Ring>& rings, int first, double place, int most_changes);
  void ProposeOn(const std::vector<Ring>& rings, int pp_rank, const Move& move, int most_changes);
  void ProposeRing(const std::vector<Ring>& rings, int pp_rank, const Ring& ring, int most_changes);
  // `next` is the ring before the split.
  bool Split(Ring& next, int position, int amount, const RankClocks& rank, int most_changes);
  int Below(int end) { return perseus::Below(random_, end); }
  // The index of the pp_rank's proposal in proposals_, or used_ if the pp_rank has none.
  std::size_t IndexOf(int pp_rank) const;
  int Step(int most);
  int SignedStep(int most);

  const std::vector<RankClocks>& ranks_;
  std::vector<int> movable_;
  SplitMix64 random_;
  std::vector<std::vector<Ring>> offered_;  // [pp_rank] The offered rings, each once.
  // The first `used_` are the proposals of this move. The others keep their memory.
  std::vector<Proposal> proposals_;
  std::size_t used_ = 0;
  Ring scratch_;
};

}  // namespace perseus::few_switches
