#include "perseus/planning/few_switches/few_switches.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "perseus/base/parallel.h"
#include "perseus/base/stopped.h"
#include "perseus/planning/few_switches/price_ascent.h"
#include "perseus/planning/few_switches/ring.h"
#include "perseus/planning/few_switches/segment_search.h"
#include "perseus/planning/profile/curve.h"

namespace perseus::few_switches {
namespace {

// The effort for one budget. Each start gets kFirstMoves moves of the search. The best results get
// kFinalMoves more, in up to kRounds rounds.
constexpr std::int64_t kFirstMoves = 3'000;
constexpr std::int64_t kFinalMoves = 12'000;
constexpr std::size_t kRounds = 5;
// If a round gains less than this fraction of the energy, no further round follows.
constexpr double kLeastGainOfRound = 1e-6;
// More than the number of starts and rounds of a search, because each of them has its own seed.
constexpr std::uint64_t kSeedsOfSearch = 1'000;
constexpr std::size_t kFinalists = 2;
constexpr std::size_t kNarrowFinalists = 1;
// The number of starts that combine the sequences of different pp_ranks from several steps of the
// ascent.
constexpr int kMixtures = 4;
constexpr int kNarrowMixtures = 2;
// A small job profits more from moves, so it gets up to kMostSmall times as many. A tiny job has
// few plans, so it gets fewer moves.
constexpr double kFullEffortInstructions = 1'000;
constexpr double kMostSmall = 12;
constexpr double kTinyInstructions = 12;
// The number of steps of an ascent. The work of a step is about instructions * (changes + 2).
constexpr double kStepWork = 350'000;
constexpr double kLeastSteps = 20;
constexpr double kMostSteps = 300;
// The maximum number of steps with windows. The work of such a step is known only afterwards.
constexpr double kMostWindowSteps = 60;
// The steps with windows begin after this part of the steps without windows. Further steps without
// windows would be useless, because the steps with windows do not keep their gain.
constexpr double kStepsBeforeWindows = 0.25;
constexpr double kWindowWork = 4e6;
// With more changes than this, windows gain little for their work. Small jobs use windows anyway,
// if the work is at most kSmallPartOfWork of kWindowWork.
constexpr double kMostWindowChanges = 4;
constexpr double kSmallPartOfWork = 0.25;
// A bound takes much less time than a search. So for a bound, the effort is at least this value.
constexpr double kLeastBoundEffort = 0.1;
// For a budget of 0, an ascent has this many times as many steps: a step is cheap, and the prices
// of the relaxed optimum are far from the best ones.
constexpr double kStepsWithoutChanges = 3;

Result<void> CheckBudgets(std::span<const int> budgets) {
  int last = -1;
  for (const int budget : budgets) {
    if (budget < 0) return Fail("a limit of {} clock changes is out of range (from 0)", budget);
    if (budget <= last) {
      return Fail("the limits of clock changes have to rise, but {} follows {} (sort them)", budget,
                  last);
    }
    last = budget;
  }
  return {};
}

std::vector<Ring> RingsOfSequences(const std::vector<std::vector<int>>& clocks) {
  std::vector<Ring> rings;
  for (const std::vector<int>& sequence : clocks) {
    rings.push_back(sequence.empty() ? Ring{{0, 0}} : MakeRing(sequence));
  }
  return rings;
}

// An upper bound on the energy of every plan within the deadline. It adds the largest energy of
// each instruction, blocking energy for the whole time, and a change at each instruction.
double MostEnergy(const plan::Planner& planner, Nanoseconds deadline) {
  const plan::ExecutionModel& model = planner.model();
  double most_j = model.blocking_power_w * planner.pp_ranks() * ToSeconds(deadline);
  for (std::size_t i = 0; i < planner.graph().instructions.size(); ++i) {
    const auto& options = planner.graph().options_of(static_cast<int>(i)).options;
    double most_of_it_j = -std::numeric_limits<double>::infinity();
    for (const profile::Option& option : options) {
      most_of_it_j =
          std::max(most_of_it_j, profile::EffectiveEnergy(option, model.blocking_power_w));
    }
    most_j += most_of_it_j + model.switch_cost.energy_j;
  }
  return most_j;
}

// The price of each second by which the iteration ends before the deadline.
Microwatts LeastPrice(const plan::Planner& planner, const SwitchLimits& limits) {
  return limits.waiting == SwitchLimits::Waiting::kUntilEnd ? planner.blocking_price() : 0;
}

// The annealing assumes that a stall takes at least this part of a mean instruction. A much shorter
// stall makes a plan late by microseconds. At the price of late time, this costs less than any
// repair, so the annealing would end at plans that are a little late.
constexpr double kLeastStall = 0.003;

Nanoseconds SearchedStall(const plan::Planner& planner) {
  const Nanoseconds stall = planner.model().switch_cost.stall;
  if (stall == 0) return 0;
  const double longest = static_cast<double>(planner.baseline().time) * planner.pp_ranks();
  const auto instructions = static_cast<double>(planner.graph().instructions.size());
  return std::max(stall, static_cast<Nanoseconds>(kLeastStall * longest / instructions));
}

class FewSwitches {
 public:
  FewSwitches(const plan::Planner& planner, Nanoseconds deadline, const frontier::Solution& relaxed,
              std::span<const plan::Plan> known, const SwitchLimits& limits)
      : planner_(planner),
        deadline_(deadline),
        known_(known),
        limits_(limits),
        ranks_(CollectClocks(planner.graph(), planner.model().blocking_power_w)),
        relaxed_{relaxed.flow, relaxed.price},
        search_(MakeSearch(ToWatts(relaxed.price), SearchedStall(planner))),
        exact_(MakeSearch(ToWatts(relaxed.price), planner.model().switch_cost.stall)) {}

  // Computes the bound for each budget. Goes from large budgets to small ones, because the prices
  // of a budget are a good start for the next smaller budget.
  std::vector<BudgetBound> Bound(std::span<const int> budgets) const {
    SwitchBound bound(planner_, ranks_, deadline_, LeastPrice(planner_, limits_),
                      limits_.threads == SwitchLimits::Threads::kAllCores);
    PriceAscent ascent(bound, relaxed_);
    const auto instructions = static_cast<double>(planner_.graph().instructions.size());
    const double effort = std::max(limits_.effort, kLeastBoundEffort);
    double choices = 0;  // About the number of labels of a step with windows, per change.
    for (const RankClocks& rank : ranks_) {
      choices += static_cast<double>(rank.positions()) * rank.clocks;
    }
    constexpr double kRounding = 1 + 1e-9;  // More than the rounding of the sum.
    const double most_j = MostEnergy(planner_, deadline_) * kRounding;
    std::vector<BudgetBound> bounds(budgets.size());
    for (std::size_t i = budgets.size(); i-- > 0 && !limits_.stop.stop_requested();) {
      const bool has_time = !limits_.finish.stop_requested();
      // Without a limit, the program has one level (segment_program.h).
      const bool is_limited = budgets[i] < MostPossibleSwitches(planner_.graph());
      const double levels = is_limited ? budgets[i] + 2 : 2;
      const double steps = std::clamp(kStepWork / (instructions * levels), kLeastSteps, kMostSteps);
      const double more = budgets[i] < 2 ? kStepsWithoutChanges : 1;
      PriceAscent::Effort climb;
      if (has_time) {
        climb.steps = static_cast<int>(steps * more * effort);
        const double work = kWindowWork * effort;
        const double step_work = choices * (budgets[i] + 1);
        const bool is_small = step_work * kMostWindowSteps <= kSmallPartOfWork * kWindowWork;
        const bool has_few = budgets[i] <= kMostWindowChanges * std::max(effort, 1.0);
        const bool pays = is_limited && (is_small || has_few) && step_work <= work;
        if (pays) {
          climb.steps = std::max(static_cast<int>(climb.steps * kStepsBeforeWindows),
                                 std::min(climb.steps, static_cast<int>(kLeastSteps)));
          climb.window_steps = static_cast<int>(kMostWindowSteps * effort);
          climb.window_work = static_cast<std::int64_t>(work);
        }
      }
      ascent.Climb(budgets[i], climb);
      bounds[i] = {ascent.best(), ascent.latest()};
      bounds[i].best.exists &= ToJoules(bounds[i].best.bound) <= most_j;
    }
    return bounds;
  }

  // The best plan of a budget so far.
  using Best = std::optional<SegmentSearch::Found>;
  // Improves the best plan of this budget. The searches start from the sequences of the bound, and
  // from the best plans so far of this budget and of the next smaller one. Call it for the budgets
  // in rising order. Requires search_number >= 0.
  void Improve(int most_changes, const BudgetBound& bound, int search_number, Best& best) {
    if (!bound.best.exists) return;
    if (best && (!search_.best() || best->energy_j < search_.best()->energy_j))
      search_.Restore(best);
    std::vector<std::vector<Ring>> starts = Starts(most_changes, bound);
    search_.ForgetOffers();
    for (const std::vector<Ring>& start : starts) search_.Offer(start);
    for (const auto& clocks : bound.latest) {
      std::vector<Ring> rings = RingsOfSequences(clocks);
      if (Fits(rings, most_changes)) search_.Offer(rings);
    }
    const auto first_seed = 1 + kSeedsOfSearch * static_cast<std::uint64_t>(search_number);
    const Best found = Search(std::move(starts), most_changes, first_seed);
    if (found && (!search_.best() || found->energy_j < search_.best()->energy_j)) {
      search_.Restore(found);
    }
    best = search_.best();
  }

  // Call it before the smallest budget.
  void Begin() { search_.Forget(); }
  BudgetPlan PlanOf(int most_changes, const BudgetBound& bound, const Best& best) const {
    BudgetPlan result;
    result.most_changes = most_changes;
    result.lower_bound_j =
        bound.best.exists ? ToJoules(bound.best.bound) : std::numeric_limits<double>::infinity();
    if (!best) return result;
    result.plan.emplace();
    result.plan->deadline = deadline_;
    result.plan->options = search_.OptionsOf(best->rings);
    result.plan->evaluation =
        plan::Evaluator(planner_.graph(), planner_.model()).Evaluate(result.plan->options);
    result.changes = result.plan->evaluation.pp_rank_switches;
    return result;
  }

 private:
  // Anneals every start. Then anneals the best results again as long as they improve. Then polishes
  // the results. The starts are independent of each other.
  std::optional<SegmentSearch::Found> Search(std::vector<std::vector<Ring>> starts,
                                             int most_changes, std::uint64_t first_seed) {
    const auto anneal = [&](SegmentSearch& search, std::vector<Ring> start, std::int64_t moves,
                            std::size_t number) {
      SegmentSearch::Effort effort;
      effort.moves = Moves(moves);
      effort.seed = first_seed + number;
      search.Forget();
      search.Anneal(std::move(start), most_changes, effort, {limits_.stop, limits_.finish});
    };
    std::vector<std::optional<SegmentSearch::Found>> results(starts.size());
    ForEach(starts.size(), [&](std::size_t i) {
      SegmentSearch search = search_;
      SegmentSearch exact = exact_;
      exact.Start(starts[i]);
      anneal(search, std::move(starts[i]), kFirstMoves, i);
      if (search.best()) exact.Start(search.best()->rings);
      results[i] = exact.best();
    });
    std::vector<SegmentSearch::Found> found;
    for (std::optional<SegmentSearch::Found>& one : results) {
      if (one) found.push_back(*std::move(one));
    }
    for (const SegmentSearch::Found& one : found) search_.Offer(one.rings);
    std::ranges::stable_sort(found, {}, &SegmentSearch::Found::energy_j);
    found.resize(std::min(found.size(), is_narrow() ? kNarrowFinalists : kFinalists));
    ForEach(found.size(), [&](std::size_t i) {
      SegmentSearch search = search_;
      SegmentSearch exact = exact_;
      exact.Restore(found[i]);
      for (std::size_t round = 0; round < kRounds; ++round) {
        const double before_j = exact.best()->energy_j;
        anneal(search, exact.best()->rings, kFinalMoves, starts.size() + i * kRounds + round);
        if (search.best()) exact.Start(search.best()->rings);
        if (exact.best()->energy_j > before_j * (1 - kLeastGainOfRound)) break;
      }
      exact.Polish(Moves(kFinalMoves));
      found[i] = *exact.best();
    });
    const auto best = std::ranges::min_element(found, {}, &SegmentSearch::Found::energy_j);
    return best == found.end() ? std::nullopt : std::optional(*best);
  }

  SegmentSearch MakeSearch(double price_w, Nanoseconds stall) const {
    const double waiting_w = limits_.waiting == SwitchLimits::Waiting::kUntilEnd
                                 ? planner_.model().blocking_power_w * planner_.pp_ranks()
                                 : 0;
    return {planner_, ranks_, deadline_, price_w, waiting_w, stall};
  }

  bool is_narrow() const { return limits_.breadth == SwitchLimits::Breadth::kNarrow; }
  std::int64_t Moves(std::int64_t count) const {
    const auto instructions = static_cast<double>(planner_.graph().instructions.size());
    const double small = std::clamp(kFullEffortInstructions / instructions, 1.0, kMostSmall);
    const double tiny = std::min(1.0, instructions / kTinyInstructions);
    return static_cast<std::int64_t>(static_cast<double>(count) * limits_.effort * small * tiny);
  }

  void ForEach(std::size_t count, const std::function<void(std::size_t)>& work) const {
    if (limits_.threads == SwitchLimits::Threads::kAllCores) return ForEachOnAllCores(count, work);
    for (std::size_t i = 0; i < count; ++i) work(i);
  }

  std::vector<std::vector<Ring>> Starts(int most_changes, const BudgetBound& bound) const {
    std::vector<std::vector<Ring>> starts;
    const auto add = [&](std::optional<std::vector<Ring>> rings) {
      if (rings && Fits(*rings, most_changes)) starts.push_back(*std::move(rings));
    };
    add(RingsOfSequences(bound.best.clocks));
    SplitMix64 random{static_cast<std::uint64_t>(most_changes)};
    const int mixtures = is_narrow() ? kNarrowMixtures : kMixtures;
    for (int i = 0; i < mixtures && !bound.latest.empty(); ++i) {
      std::vector<std::vector<int>> mixed;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        mixed.push_back(bound.latest[At(Below(random, static_cast<int>(bound.latest.size())))][r]);
      }
      add(RingsOfSequences(mixed));
    }
    if (search_.best()) {
      add(search_.best()->rings);
      add(SegmentSearch(search_).BestMix(search_.best()->rings, most_changes));
    } else {
      // For each pp_rank, the highest clock that all its instructions have.
      std::vector<Ring> constant;
      for (const RankClocks& rank : ranks_) {
        int clock = 0;
        const auto is_complete = [&] {
          for (int p = 0; p < rank.positions(); ++p) {
            if (rank.options[rank.Cell(p, clock)] == RankClocks::kUnmeasured) return false;
          }
          return true;
        };
        while (clock + 1 < rank.clocks && !is_complete()) ++clock;
        constant.push_back({{0, clock}});
      }
      add(std::move(constant));
      add(RingsOf(schedule::BaselineOptions(planner_.graph())));
    }
    for (const plan::Plan& plan : known_) {
      if (plan.options.size() != planner_.graph().instructions.size()) continue;
      std::optional<std::vector<Ring>> rings = RingsOf(plan.options);
      if (!rings) continue;
      for (std::size_t r = 0; r < rings->size(); ++r) {
        Shrink((*rings)[r], ranks_[r].positions(), most_changes);
      }
      add(std::move(rings));
    }
    return starts;
  }

  // The rings of a plan, or nullopt if the plan uses a clock that is not useful (rank_clocks.h).
  std::optional<std::vector<Ring>> RingsOf(const std::vector<int>& options) const {
    std::vector<std::vector<int>> sequences;
    for (const RankClocks& rank : ranks_) {
      std::vector<int> clocks;
      for (int p = 0; p < rank.positions(); ++p) {
        const int option = options[At(rank.instructions[At(p)])];
        int clock = 0;
        while (clock < rank.clocks && rank.options[rank.Cell(p, clock)] != option) ++clock;
        if (clock == rank.clocks) return std::nullopt;
        clocks.push_back(clock);
      }
      sequences.push_back(std::move(clocks));
    }
    return RingsOfSequences(sequences);
  }

  bool Fits(const std::vector<Ring>& rings, int most_changes) const {
    return search_.IsMeasured(rings) && std::ranges::all_of(rings, [&](const Ring& ring) {
             return ring.size() <= MostSegments(most_changes);
           });
  }

  const plan::Planner& planner_;
  Nanoseconds deadline_;
  std::span<const plan::Plan> known_;
  SwitchLimits limits_;
  std::vector<RankClocks> ranks_;
  Prices relaxed_;
  SegmentSearch search_;  // With SearchedStall. Its best() has exact energies.
  const SegmentSearch exact_;
};

}  // namespace

int MostPossibleSwitches(const schedule::InstructionGraph& graph) {
  std::ptrdiff_t most = 0;
  for (const std::vector<int>& order : graph.pp_rank_orders) {
    most = std::max(most, std::ranges::count_if(order, [&](int instruction) {
                      return graph.options_of(instruction).HasClock();
                    }));
  }
  return static_cast<int>(most);
}

Result<std::vector<BudgetBound>> BoundFewSwitches(const plan::Planner& planner,
                                                  Nanoseconds deadline,
                                                  std::span<const int> budgets,
                                                  const SwitchLimits& limits) {
  PERSEUS_RETURN_IF_ERROR(CheckBudgets(budgets));
  PERSEUS_ASSIGN_OR_RETURN(const frontier::Solution relaxed,
                           planner.Relax(deadline, LeastPrice(planner, limits), limits.stop));
  std::vector<BudgetBound> bounds =
      FewSwitches(planner, deadline, relaxed, {}, limits).Bound(budgets);
  if (limits.stop.stop_requested()) return FailAsStopped();
  return bounds;
}

Result<std::vector<BudgetPlan>> PlanFewSwitches(const plan::Planner& planner, Nanoseconds deadline,
                                                std::span<const int> budgets,
                                                std::span<const plan::Plan> known,
                                                const SwitchLimits& limits,
                                                std::vector<BudgetBound> bounds) {
  if (bounds.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(bounds, BoundFewSwitches(planner, deadline, budgets, limits));
  }
  PERSEUS_ASSIGN_OR_RETURN(const frontier::Solution relaxed,
                           planner.Relax(deadline, LeastPrice(planner, limits), limits.stop));
  FewSwitches few(planner, deadline, relaxed, known, limits);
  std::vector<BudgetPlan> plans;
  std::vector<FewSwitches::Best> best(budgets.size());
  std::size_t searched = 0;  // How many budgets were searched. Small budgets come first.
  for (int search = 0; search < limits.searches; ++search) {
    if (search > 0 && limits.finish.stop_requested()) break;
    few.Begin();
    for (std::size_t i = 0; i < budgets.size(); ++i) {
      if (!limits.finish.stop_requested()) searched = std::max(searched, i + 1);
      few.Improve(budgets[i], bounds[i], limits.first_search + search, best[i]);
      if (limits.stop.stop_requested()) return FailAsStopped();
    }
  }
  for (std::size_t i = 0; i < budgets.size(); ++i) {
    plans.push_back(few.PlanOf(budgets[i], bounds[i], best[i]));
    plans.back().is_searched = i < searched;
  }
  // A plan within a budget is also within every larger budget. So the bound of a larger budget
  // holds for the smaller ones.
  double bound_j = 0;
  for (std::size_t i = plans.size(); i-- > 0;) {
    bound_j = std::max(bound_j, plans[i].lower_bound_j);
    plans[i].lower_bound_j = bound_j;
    if (plans[i].plan) plans[i].plan->lower_bound_j = bound_j;
  }
  return plans;
}

}  // namespace perseus::few_switches
