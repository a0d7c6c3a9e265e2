// A search for the best plan with at most N clock changes per pp_rank.
//
// The search is simulated annealing over rings (Kirkpatrick, Gelatt & Vecchi 1983). A ring is the
// sequence of clocks of a pp_rank as segments (ring.h), so every state keeps the limit on changes.
// ring_moves.h has the moves.
//
// One kind of move replaces a ring by an offered ring: a sequence that attains the bound at the
// latest prices (price_ascent.h), or a ring of the best plan from another start. Such a ring is
// good only as a whole: small moves lead from one good ring to another only through worse rings. So
// this move combines the rings of different plans, as recombination in a genetic algorithm does.
//
// A late plan is one that misses the deadline. It pays a price for each second after the deadline.
// This price grows during the search, until a late plan is never accepted. (With a low constant
// price, the search never ends within the deadline. With a high constant price, it gets stuck if
// the deadline is the least possible time.) An early plan gets a reward for each second before the
// deadline: at first half of the marginal price of time, and nothing at the end. So one move can
// make a pp_rank faster, and a later move of another pp_rank can use the time. The result is the
// best plan within the deadline that the search saw.
//
// Where time is short, a step that saves energy takes more time. So another step on the same path
// has to save this time. So a move that makes a known path too long (late_paths.h) gets a second
// try. The search tries a few faster clocks that make this path short enough, and adds the cheapest
// of them to the move.
//
// Random moves are large. So the random search misses some small steps that would save energy. At
// the end, a descent tries all small steps. It takes less than a tenth of the time of the
// annealing.
//
// The stall and the energy of a change are counted in the first instruction of a segment. So a move
// also changes the durations of those instructions that begin a segment either before or after the
// move, but not both.
//
// WHAT MAKES IT FAST
//   Most moves are rejected. The search knows the energies of a move before its time. From these
//   energies, it computes the latest time at which it would accept the move. Three tests follow.
//   First, the latest time may be below the least possible time. Second, a path that made an
//   earlier move late may take longer than the latest time (late_paths.h). Third, the search
//   computes the time (timeline.h), and stops as soon as the time exceeds the latest time.
//
//   With a switch latency, times and energies depend on each other. Then the latest time assumes
//   that the latency adds as much energy as before the move. If a move passes the tests, its time
//   and energy are computed exactly. So the search may miss a move that is good only because it
//   reduces the energy that the latency adds.
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
  // optimum, and `waiting_w` is the power of all GPUs that wait, both in watts. A clock change
  // takes `stall`.
  SegmentSearch(const plan::Planner& planner, const std::vector<RankClocks>& ranks,
                Nanoseconds deadline, double price_w, double waiting_w, Nanoseconds stall);

  struct Effort {
    std::int64_t moves = 5'000;
    std::uint64_t seed = 1;
  };
  // Ends early after a request on one of `ends`. `start` has a ring for each pp_rank. Requires that
  // every clock of `start` is measured at its positions, and that no ring has more than
  // max(most_changes, 1) segments.
  void Anneal(std::vector<Ring> start, int most_changes, const Effort& effort,
              std::initializer_list<std::stop_token> ends = {});

  // Improves the best plan by small steps, until no step saves energy, or after `most_tries` tries.
  // A step moves one clock or one boundary of a segment by one, or makes one clock slower and
  // another one faster.
  void Polish(std::int64_t most_tries);

  // Returns the cheapest mix of these rings (RingMoves::Mixes), where time costs its marginal
  // price. The mix may be late. Returns nullopt if the rings have no mix. May find a new best().
  std::optional<std::vector<Ring>> BestMix(const std::vector<Ring>& rings, int most_changes);

  // Offers a ring for each pp_rank to the moves of Anneal. Requires measured clocks.
  void Offer(const std::vector<Ring>& rings) { moves_.Offer(rings); }
  void ForgetOffers() { moves_.ForgetOffers(); }

  // The best plan within the deadline since the last Forget.
  struct Found {
    std::vector<Ring> rings;
    double energy_j = 0;  // The energy of an iteration, with waiting.
  };
  const std::optional<Found>& best() const { return best_; }
  void Forget() { best_.reset(); }
  void Restore(std::optional<Found> best) { best_ = std::move(best); }

  // The rings as an option for each instruction.
  std::vector<int> OptionsOf(const std::vector<Ring>& rings) const;
  bool IsMeasured(const std::vector<Ring>& rings) const;

  // Goes to these rings. If they are in time and better, they become best(). Requires measured
  // clocks.
  void Start(std::vector<Ring> rings);

 private:
  // Fills stretches_, energy_change_j_ and gain_. Returns false if an option is not measured, or if
  // the move changes nothing.
  bool SumChanges();
  bool SumStretch(const Stretch& stretch);
  // Fills changes_. Returns false if the iteration certainly ends after `latest` with these
  // changes.
  bool CollectChanges(Nanoseconds latest);
  // Whether the cost after the changes is at most `threshold`. If so, the changes are applied to
  // the timeline.
  bool Decide(double threshold);
  // Call it after Decide returned false. If the move makes a known path too long, adds a faster
  // clock to the move. Returns whether the cost is then at most `threshold`.
  bool Repair(double threshold);
  // One clock or one boundary moves by `amount`.
  struct Step {
    int pp_rank = 0;
    std::size_t segment = 0;
    enum class Kind { kClock, kBoundary } kind = Kind::kClock;
    int amount = 0;
  };
  std::vector<Step> Steps() const;
  // Takes the steps if they make the plan better.
  bool Improve(std::span<const Step> steps);
  // ImproveByOneStep tries single steps. ImproveByTwoClocks tries pairs of steps: one clock gets
  // slower and another one faster. Both return whether the plan became better, and subtract their
  // tries from `tries_left`.
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
  double waiting_j_per_ns_;  // The power of all waiting pp_ranks.
  double price_j_per_ns_;
  double late_j_per_ns_ = 0;
  double early_j_per_ns_ = 0;
  RingMoves moves_;

  Timeline timeline_;
  LatePaths late_paths_;
  double fixed_energy_j_ = 0;  // Effective energy of instructions without a choice.
  std::vector<Ring> rings_;
  double energy_j_ = 0;  // Effective energy of all instructions, without the effect of a latency.
  double cost_ = 0;

  std::span<RingMoves::Proposal> proposals_;  // A view of moves_ or of stepped_.
  std::vector<RingMoves::Proposal> stepped_;  // The scratch memory of Improve.
  std::vector<Stretch> stretches_;
  std::vector<Timeline::Change> changes_;
  double energy_change_j_ = 0;
  Nanoseconds gain_ = 0;  // No path of the iteration gets shorter by more than this.
  // If Decide found a known path that is too long: by how much.
  std::optional<Nanoseconds> excess_;
  std::optional<Found> best_;
};

}  // namespace perseus::few_switches
