// A search for the best plan with at most N clock changes per pp_rank.
//
// The search is simulated annealing over rings (Kirkpatrick, Gelatt & Vecchi 1983): the clocks of a
// pp_rank as segments (ring.h), so that every state keeps the limit of changes. ring_moves.h has
// the moves.
//
// One move takes a whole ring that was offered: a sequence that attains the bound at the latest
// prices (price_ascent.h), or a ring of the best plan of another start. Such a ring is good as a
// whole, and small moves lead from one to another only over worse ones. The move combines the rings
// of different plans, as recombination in a genetic algorithm does.
//
// A plan that is late costs a price for each second. This price grows during the search, until such
// a plan never pays. (A constant price that is low never ends within the deadline; one that is high
// gets stuck, where the deadline is the least possible time.) A plan that is early gains a price
// for each second, at first half of the marginal price of time, and at the end nothing. So a
// pp_rank can become faster in one move, and another pp_rank can use the time in a later move. The
// result is the best plan that the search saw within the deadline.
//
// Where time is short, a step that saves energy needs time, and another step on the same path has
// to save this time. So a move that makes a known path too long (late_paths.h) gets a second
// chance, together with the cheapest of a few faster clocks that shorten this path enough.
//
// Random moves are wide, so a few small steps that would pay are never tried. At its end, the
// search descends and tries all of them. It costs less than a tenth of the annealing before it.
//
// A stall and the energy of a change belong to the first instruction of a segment. So a move also
// changes the durations of instructions that begin a segment only before it or only after it.
//
// WHAT MAKES IT FAST
//   Most moves are rejected. The energies of a move are known before its time, and with them the
//   latest time at which the move would be accepted. Often it is below the least possible time, or
//   a path that made an earlier move late takes longer (late_paths.h). Otherwise the computation of
//   the time (timeline.h) ends as soon as the time exceeds the latest time. With a switch latency,
//   times and energies depend on each other. Then the latest time assumes that the latency adds as
//   much energy as before, and a move that seems to pay is computed to the end. So the search may
//   miss a move that pays only because the latency of others adds less.
//
// Deterministic: the effort is a number of moves, and the random numbers are the same everywhere.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "perseus/planning/few_switches/late_paths.h"
#include "perseus/planning/few_switches/rank_clocks.h"
#include "perseus/planning/few_switches/ring.h"
#include "perseus/planning/few_switches/ring_moves.h"
#include "perseus/planning/few_switches/timeline.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::few_switches {

class SegmentSearch {
 public:
  // Keeps references to `planner` and `ranks`. `price_w` is the price of time at the relaxed
  // optimum, and `waiting_w` is the power of all GPUs that wait, both in watts.
  SegmentSearch(const plan::Planner& planner, const std::vector<RankClocks>& ranks,
                Nanoseconds deadline, double price_w, double waiting_w);

  struct Effort {
    std::int64_t moves = 5'000;
    std::uint64_t seed = 1;
  };
  // Ends early once one of `ends` is requested. Requires that every clock of `start` ([pp_rank] a
  // ring) is measured at its positions, and that no ring has more than max(most_changes, 1)
  // segments.
  void Anneal(std::vector<Ring> start, int most_changes, const Effort& effort,
              std::initializer_list<std::stop_token> ends = {});

  // Descends from the best plan, until no step makes it better: one clock or boundary of a segment
  // moves by one, or one clock becomes slower and another one faster. Ends after `most_tries`
  // tries.
  void Polish(std::int64_t most_tries);

  // Returns the mix of these rings (RingMoves::Mixes) that costs least if time has its marginal
  // price. The mix may be late. Returns nullopt if the rings have no mix. May find a new best().
  std::optional<std::vector<Ring>> BestMix(const std::vector<Ring>& rings, int most_changes);

  // Offers a ring for each pp_rank to the moves of Anneal. Requires measured clocks.
  void Offer(const std::vector<Ring>& rings) { moves_.Offer(rings); }
  void ForgetOffers() { moves_.ForgetOffers(); }

  // The best plan within the deadline since the last Forget.
  struct Found {
    std::vector<Ring> rings;
    double energy_j = 0;  // Per iteration, waiting included.
  };
  const std::optional<Found>& best() const { return best_; }
  void Forget() { best_.reset(); }
  void Restore(std::optional<Found> best) { best_ = std::move(best); }

  // The rings as an option for each instruction.
  std::vector<int> OptionsOf(const std::vector<Ring>& rings) const;
  bool IsMeasured(const std::vector<Ring>& rings) const;

 private:
  void Start(std::vector<Ring> rings);
  // Fills stretches_, the energy difference and the gain. Returns false if an option is not
  // measured, or if nothing changes.
  bool SumChanges();
  bool SumStretch(const Stretch& stretch);
  // Fills changes_. Returns false if they certainly make the iteration end after `latest`.
  bool CollectChanges(Nanoseconds latest);
  // Whether the cost after the changes is at most `threshold`. If so, the timeline has the changes.
  bool Decide(double threshold);
  // Call it after Decide returned false. If the move makes a known path too long, adds a faster
  // clock to the move. Returns whether the cost is then at most `threshold`.
  bool Repair(double threshold);
  // A clock or a boundary moves by one.
  struct Step {
    int pp_rank = 0;
    std::size_t segment = 0;
    enum class Kind { kClock, kBoundary } kind = Kind::kClock;
    int amount = 0;
  };
  std::vector<Step> Steps() const;
  // Takes the steps if they make the plan better.
  bool Improve(std::span<const Step> steps);
  // Returns whether such steps made the plan better. Counts the tries down.
  bool ImproveByOneStep(std::int64_t& tries_left);
  bool ImproveByTwoClocks(std::int64_t& tries_left);
  Nanoseconds LatestTime(double threshold) const;
  double EnergyAfter() const { return energy_j_ + energy_change_j_; }
  void Accept();
  double Cost(double instruction_energy_j, Nanoseconds time) const;
  double CurrentCost() const;
  void Remember();
  double Exponential();

  const plan::Planner& planner_;
  const std::vector<RankClocks>& ranks_;
  schedule::SwitchCost switch_cost_;
  Nanoseconds deadline_;
  Nanoseconds latency_slack_ = 0;
  double waiting_j_per_ns_;  // All pp_ranks.
  double price_j_per_ns_;
  double late_j_per_ns_ = 0;
  double early_j_per_ns_ = 0;
  RingMoves moves_;

  Timeline timeline_;
  LatePaths late_paths_;
  double fixed_energy_j_ = 0;  // Effective energy of instructions without a choice.
  std::vector<Ring> rings_;
  double energy_j_ = 0;  // Effective energy of all instructions, without what a latency adds.
  double cost_ = 0;

  std::span<RingMoves::Proposal> proposals_;  // A view of moves_ or of stepped_.
  std::vector<RingMoves::Proposal> stepped_;  // The scratch memory of Improve.
  std::vector<Stretch> stretches_;
  std::vector<Timeline::Change> changes_;
  double energy_change_j_ = 0;
  Nanoseconds gain_ = 0;               // No path of the iteration gets shorter by more than this.
  std::optional<Nanoseconds> excess_;  // How late the known path is that made Decide false.
  std::optional<Found> best_;
};

}  // namespace perseus::few_switches
