#include "perseus/planning/few_switches/few_switches.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "perseus/base/stopped.h"
#include "perseus/planning/few_switches/price_ascent.h"
#include "perseus/planning/few_switches/segment_search.h"

namespace perseus::few_switches {
namespace {

// The effort for one budget.
constexpr std::int64_t kMovesPerStart = 20'000;
constexpr int kMostSteps = 60;
constexpr int kLeastSteps = 20;
// The steps of all instructions together, for large jobs.
constexpr double kStepInstructions = 30'000;

Result<void> CheckRequest(const plan::Planner& planner, std::span<const int> budgets) {
  if (planner.model().switch_latency > 0) {
    return Fail(
        "a limit of clock changes cannot be combined with a switch latency of {:.3f} ms (set the "
        "latency to 0: few changes cost little time)",
        ToSeconds(planner.model().switch_latency) * kMillisecondsPerSecond);
  }
  int last = -1;
  for (const int budget : budgets) {
    if (budget < 0) return Fail("a limit of {} clock changes is out of range (from 0)", budget);
    if (budget <= last) {
      return Fail("the limits of clock changes have to rise, but {} follows {}", budget, last);
    }
    last = budget;
  }
  return {};
}

class FewSwitches {
 public:
  FewSwitches(const plan::Planner& planner, Nanoseconds deadline,
              const frontier::Solution& relaxed, std::span<const plan::Plan> known,
              const SwitchLimits& limits)
      : planner_(planner),
        deadline_(deadline),
        known_(known),
        limits_(limits),
        ranks_(CollectClocks(planner.graph(), planner.model().blocking_power_w)),
        bound_(planner, ranks_, deadline),
        ascent_(bound_, {relaxed.flow, relaxed.price}),
        search_(planner, ranks_, deadline, ToWatts(relaxed.price)) {}

  // Climbs for the budget. Call it for falling budgets: the prices of one are a good start for the
  // next smaller one.
  SwitchBound::Answer Bound(int most_changes);
  // Searches from the sequences of the bound, and from the best plan so far. Call it for rising
  // budgets.
  BudgetPlan Plan(int most_changes, const SwitchBound::Answer& bound);

 private:
  std::vector<std::vector<Ring>> Starts(int most_changes, const SwitchBound::Answer& bound) const;
  std::optional<std::vector<Ring>> RingsOf(const std::vector<int>& options) const;
  bool Fits(const std::vector<Ring>& rings, int most_changes) const;

  const plan::Planner& planner_;
  Nanoseconds deadline_;
  std::span<const plan::Plan> known_;
  SwitchLimits limits_;
  std::vector<RankClocks> ranks_;
  SwitchBound bound_;
  PriceAscent ascent_;
  SegmentSearch search_;
};

// The rings of a plan; none if it uses a clock that is not useful (rank_clocks.h).
std::optional<std::vector<Ring>> FewSwitches::RingsOf(const std::vector<int>& options) const {
  std::vector<Ring> rings;
  for (const RankClocks& rank : ranks_) {
    std::vector<int> clocks;
    for (int p = 0; p < rank.positions(); ++p) {
      const int option = options[At(rank.instructions[At(p)])];
      int clock = 0;
      while (clock < rank.clocks && rank.options[rank.Cell(p, clock)] != option) ++clock;
      if (clock == rank.clocks) return std::nullopt;
      clocks.push_back(clock);
    }
    rings.push_back(clocks.empty() ? Ring{{0, 0}} : MakeRing(clocks));
  }
  return rings;
}

bool FewSwitches::Fits(const std::vector<Ring>& rings, int most_changes) const {
  return search_.IsMeasured(rings) && std::ranges::all_of(rings, [&](const Ring& ring) {
           return ring.size() <= At(std::max(most_changes, 1));
         });
}

std::vector<std::vector<Ring>> FewSwitches::Starts(int most_changes,
                                                   const SwitchBound::Answer& bound) const {
  std::vector<std::vector<Ring>> starts;
  const auto add = [&](std::optional<std::vector<Ring>> rings) {
    if (rings && Fits(*rings, most_changes)) starts.push_back(*std::move(rings));
  };
  std::vector<Ring> sequences;
  for (const std::vector<int>& clocks : bound.clocks) {
    sequences.push_back(clocks.empty() ? Ring{{0, 0}} : MakeRing(clocks));
  }
  add(std::move(sequences));
  if (search_.best()) {
    add(search_.best()->rings);
  } else {
    // The highest clock that all instructions of a pp_rank have.
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
    if (plan.options.size() == planner_.graph().instructions.size()) add(RingsOf(plan.options));
  }
  return starts;
}

SwitchBound::Answer FewSwitches::Bound(int most_changes) {
  const auto instructions = static_cast<double>(planner_.graph().instructions.size());
  const double steps =
      std::clamp(kStepInstructions / instructions, double{kLeastSteps}, double{kMostSteps});
  ascent_.Climb(most_changes, static_cast<int>(steps * limits_.effort));
  return ascent_.best();
}

BudgetPlan FewSwitches::Plan(int most_changes, const SwitchBound::Answer& bound) {
  BudgetPlan result;
  result.most_changes = most_changes;
  result.lower_bound_j =
      bound.exists ? ToJoules(bound.bound) : std::numeric_limits<double>::infinity();
  if (!bound.exists) return result;
  SegmentSearch::Effort effort;
  effort.moves = static_cast<std::int64_t>(static_cast<double>(kMovesPerStart) * limits_.effort);
  for (std::vector<Ring>& start : Starts(most_changes, bound)) {
    search_.Anneal(std::move(start), most_changes, effort, limits_.stop);
    ++effort.seed;
  }
  if (!search_.best()) return result;
  result.plan.emplace();
  result.plan->deadline = deadline_;
  result.plan->options = search_.OptionsOf(search_.best()->rings);
  result.plan->evaluation =
      plan::Evaluator(planner_.graph(), planner_.model()).Evaluate(result.plan->options);
  result.changes = CyclicChanges(planner_.graph(), result.plan->options);
  return result;
}

}  // namespace

Result<std::vector<BudgetPlan>> PlanFewSwitches(const plan::Planner& planner, Nanoseconds deadline,
                                                std::span<const int> budgets,
                                                std::span<const plan::Plan> known,
                                                const SwitchLimits& limits) {
  PERSEUS_RETURN_IF_ERROR(CheckRequest(planner, budgets));
  PERSEUS_ASSIGN_OR_RETURN(const frontier::Solution relaxed,
                           planner.Relax(deadline, planner.blocking_price(), limits.stop));
  FewSwitches few(planner, deadline, relaxed, known, limits);
  std::vector<BudgetPlan> plans;
  std::vector<SwitchBound::Answer> bounds(budgets.size());
  for (std::size_t i = budgets.size(); i-- > 0;) {
    bounds[i] = few.Bound(budgets[i]);
    if (limits.stop.stop_requested()) return FailAsStopped();
  }
  for (std::size_t i = 0; i < budgets.size(); ++i) {
    plans.push_back(few.Plan(budgets[i], bounds[i]));
    if (limits.stop.stop_requested()) return FailAsStopped();
  }
  // A plan with fewer changes is also a plan with more. So the bound of a larger budget holds for
  // the smaller ones.
  double bound_j = 0;
  for (std::size_t i = plans.size(); i-- > 0;) {
    bound_j = std::max(bound_j, plans[i].lower_bound_j);
    plans[i].lower_bound_j = bound_j;
    if (plans[i].plan) plans[i].plan->lower_bound_j = bound_j;
  }
  return plans;
}

}  // namespace perseus::few_switches
