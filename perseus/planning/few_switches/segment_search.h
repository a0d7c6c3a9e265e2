// A search for the best plan with at most N clock changes per pp_rank.
//
// A pp_rank's clocks over an iteration that repeats are a ring of segments: runs of instructions at
// one clock. A ring of m segments has m changes, and a ring of one segment has none. So "at most N
// changes" means "at most max(N, 1) segments", and every state of the search has that property.
//
// The search is simulated annealing over rings (Kirkpatrick, Gelatt & Vecchi 1983). Its moves:
//   - another clock for a segment, or for segments of two pp_ranks in opposite directions;
//   - a boundary between two segments, or both ends of a segment, move along the iteration;
//   - a segment splits, or disappears into a neighbor;
//   - a pp_rank takes a whole ring that was offered.
// Good plans change clocks at about the same microbatch on all pp_ranks. So half of the moves do
// the same to several neighboring pp_ranks at once: to the segments nearest to the same place. A
// tenth of the moves consist of two such moves.
//
// Offered are the sequences that attain the bound at the latest prices (price_ascent.h), and the
// rings of the best plans of other starts. Such a ring is good as a whole, and a walk of small
// moves from one to another leads over worse ones. The move combines the rings of different plans,
// as recombination in a genetic algorithm does.
//
// A plan that is late, or that breaks a rule (change_rules.h), costs a price for each second. This
// price grows during the search, until such a plan never pays. (A constant price that is low never
// ends within the deadline; one that is high gets stuck, where the deadline is the least possible
// time.) The result is the best plan that the search saw within the deadline and the rules.
//
// A stall and the energy of a change belong to the first instruction of a segment. So a move also
// changes the durations of instructions that begin a segment only before it or only after it.
//
// WHAT MAKES IT FAST
//   Most moves are rejected. The energies of a move are known before its time, and with them the
//   latest time at which the move would be accepted. Often it is below the least possible time.
//   Otherwise the computation of the time (timeline.h) ends as soon as it exceeds the latest one.
//   With a switch latency, energies depend on times, so every move needs them.
//
// Deterministic: the effort is a number of moves, and the random numbers are the same everywhere.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stop_token>
#include <vector>

#include "perseus/base/random.h"
#include "perseus/planning/few_switches/change_rules.h"
#include "perseus/planning/few_switches/rank_clocks.h"
#include "perseus/planning/few_switches/timeline.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::few_switches {

struct Segment {
  int start = 0;  // Its first position. It ends where the next one starts; the last one wraps.
  int clock = 0;
  bool operator==(const Segment&) const = default;
};
// Sorted by start. Neighbors have different clocks. A ring of one segment starts at 0.
using Ring = std::vector<Segment>;

// The clocks of a pp_rank ([position]) as a ring, and back.
Ring MakeRing(const std::vector<int>& clocks);
std::vector<int> ClocksOf(const Ring& ring, int positions);

class SegmentSearch {
 public:
  // Keeps references to `planner`, `ranks` and `checker`. `price_w` is the price of time at the
  // relaxed optimum, in watts.
  SegmentSearch(const plan::Planner& planner, const std::vector<RankClocks>& ranks,
                const RuleChecker& checker, Nanoseconds deadline, double price_w);

  struct Effort {
    std::int64_t moves = 5'000;
    // As fractions of the mean energy of an instruction in the baseline.
    double first_temperature = 0.01;
    double last_temperature = 0.0005;
    std::uint64_t seed = 1;
  };
  // Ends early once one of `ends` is requested. Requires that every clock of `start` ([pp_rank] a
  // ring) is measured at its positions, and that no ring has more than max(most_changes, 1)
  // segments.
  void Anneal(std::vector<Ring> start, int most_changes, const Effort& effort,
              std::initializer_list<std::stop_token> ends = {});

  // Offers a ring for each pp_rank to the moves of Anneal. Requires measured clocks.
  void Offer(const std::vector<Ring>& rings);
  void ForgetOffers() { offered_.clear(); }

  // The best plan within the deadline and the rules since the last Forget.
  struct Found {
    std::vector<Ring> rings;
    double energy_j = 0;  // Of the iteration, waiting included.
  };
  const std::optional<Found>& best() const { return best_; }
  void Forget() { best_.reset(); }
  void Restore(std::optional<Found> best) { best_ = std::move(best); }

  // The rings as an option for each instruction.
  std::vector<int> OptionsOf(const std::vector<Ring>& rings) const;
  bool IsMeasured(const std::vector<Ring>& rings) const;

 private:
  // A proposed new ring of one pp_rank.
  struct Proposal {
    int pp_rank = 0;
    Ring ring;
  };

  void Start(std::vector<Ring> rings);
  bool Propose(int most_changes);
  bool ProposeRing(int pp_rank, const Ring& ring, int most_changes);
  bool ProposePart(int most_changes);
  bool ProposeOn(int pp_rank, double place, int kind, int amount, int most_changes);
  // Instructions of a pp_rank, from one position to the one before another, that get a clock.
  struct Stretch {
    int pp_rank = 0;
    int begin = 0;
    int end = 0;
    int clock = 0;
    bool pays = false;  // Whether it begins with a clock change.
  };
  // Fills stretches_, the energy difference and the gain. Returns false if an option is not
  // measured, or if nothing changes.
  bool SumChanges();
  bool SumStretch(const Stretch& stretch, int old_clock);
  // Fills changes_. Returns false if they certainly make the iteration end after `latest`.
  bool CollectChanges(Nanoseconds latest);
  // Whether the cost after the changes is at most `threshold`. If so, the timeline has them.
  bool Decide(double threshold);
  Nanoseconds LatestTime(double threshold) const;
  double EnergyAfter() const { return energy_j_ + energy_change_j_; }
  // By how much the rings break the rules, at the times of the timeline.
  Nanoseconds BreachWithProposals();
  void Accept();
  // `breach` is the time by which the plan breaks rules.
  double Cost(double instruction_energy_j, Nanoseconds time, Nanoseconds breach = 0) const;
  double CurrentCost() const;
  void Remember();
  int Below(int end) { return static_cast<int>(random_() % static_cast<std::uint64_t>(end)); }
  int SignedStep(int most);
  double Exponential();

  const plan::Planner& planner_;
  const std::vector<RankClocks>& ranks_;
  const RuleChecker& checker_;
  schedule::SwitchCost switch_cost_;
  std::vector<int> movable_;  // The pp_ranks with a choice.
  Nanoseconds deadline_;
  double waiting_j_per_ns_;  // All pp_ranks.
  double price_j_per_ns_;
  double late_j_per_ns_ = 0;
  SplitMix64 random_;

  Timeline timeline_;
  double fixed_energy_j_ = 0;  // Effective energy of instructions without a choice.
  std::vector<Ring> rings_;
  double energy_j_ = 0;  // Effective energy of all instructions, without what a latency adds.
  Nanoseconds breach_ = 0;
  double cost_ = 0;

  std::vector<std::vector<Ring>> offered_;  // [pp_rank] without repetition.
  std::vector<Proposal> proposals_;
  Ring before_;  // The scratch memory of ProposeOn.
  std::size_t used_proposals_ = 0;
  std::vector<Stretch> stretches_;
  std::vector<Timeline::Change> changes_;
  double energy_change_j_ = 0;
  Nanoseconds gain_ = 0;  // No path of the iteration gets shorter by more than this.
  Nanoseconds breach_after_ = 0;
  std::vector<int> changing_;  // The scratch memory of BreachWithProposals.
  std::optional<Found> best_;
};

}  // namespace perseus::few_switches
