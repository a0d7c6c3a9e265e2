// Plans with few clock changes, each with a certificate of its own.
//
// A plan of planner.h changes the clock of a GPU at almost every instruction: about ten times a
// second. A change takes milliseconds and a lock in the driver, and frequent changes disturb
// collectives. This module plans for a budget: at most N clock changes per pp_rank and iteration.
// An iteration repeats, so the change back at its end counts. A single change is impossible, so a
// budget of 1 means 0.
//
// For every budget, the result is the best plan that a limited effort finds, and a lower bound on
// the energy of all plans within that budget and deadline. The bound shows what the budget costs:
// no search can find a plan below it.
//
// DESIGN
//   Bound. With prices of time (a flow), the energies of the pp_ranks separate, and a dynamic
//   program over the clocks of one pp_rank finds its best sequence with at most N changes exactly
//   (switch_bound.h, segment_program.h). The prices of the relaxed optimum give a bound at once. It
//   is loose for small N, because these prices assume that every instruction chooses on its own.
//   Candidates to improve the prices were:
//     - column generation: needs a linear-programming solver in the planner, with a row for every
//       dependency;
//     - a subgradient or bundle method in the flows: every step leaves the conserved flows, and the
//       way back is a network problem;
//     - mirror ascent over paths (price_ascent.h): every step is one pass over the arcs, and every
//       iterate is a flow, so every iterate proves a bound. Chosen: 40 steps reach the bounds of
//       column generation to 0.1 points, in a few milliseconds for 12 microbatches.
//
//   Search. The clocks of a pp_rank are a ring of segments. Candidates were:
//     - the best sequences at the best prices, then repair: fast, but all pp_ranks react to one
//       price, so the result is far too late or far too early where clocks are coarse;
//     - a mixed-integer program: does not finish for 12 microbatches;
//     - local search over boundaries and clocks with exact times (segment_search.h). Chosen, as
//       simulated annealing. It starts from the sequences of the bound, from the best plan with
//       fewer changes, and from given plans, and keeps only plans that meet the deadline.
//
//   Both count work, not seconds, and use no function whose value differs between machines. So the
//   same input gives the same plans everywhere.
//
//   Stalls, the energy of changes and a switch latency are part of the exact times and energies of
//   the search, and of the dynamic program as far as it knows them (switch_bound.h). So they
//   combine without a case for each combination.
//
// LIMITS
//   A pp_rank runs one sequence, but the bound allows mixtures of sequences. With windows, each
//   sequence of a mixture is in time by itself (window_program.h). For more than four changes, only
//   a larger effort uses windows. So where clocks are coarse, a part of the gap remains even for
//   the best plan. With a switch latency, the bound is looser.
//
// Thread safety: PlanFewSwitches may be called from several threads.
#pragma once

#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/few_switches/switch_bound.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::few_switches {

// The result for one budget.
struct BudgetPlan {
  int most_changes = 0;  // For each pp_rank, in an iteration that repeats.
  // No plan within the budget and the deadline has less energy. Infinite if it is certain that no
  // such plan exists: for example, with a budget of 0, the instructions of a pp_rank share no
  // measured clock, or only clocks that are too slow for the deadline.
  double lower_bound_j = 0;
  // The best plan that was found. Its lower_bound_j is that of the budget. nullopt if the search
  // found no plan that meets the deadline.
  std::optional<plan::Plan> plan;
  std::vector<int> changes;  // [pp_rank] The changes of the plan, at most most_changes.
  // Whether the search for this budget began before a finish was requested. If not, the plan is at
  // best a smaller budget's plan or a known plan.
  bool is_searched = true;
};

struct SwitchLimits {
  // Relative effort. 1 takes about 2 s for eight budgets and 1,536 instructions on one core.
  double effort = 1;
  // The number of searches for each budget. Each further search starts from the earlier plans, with
  // other random numbers. So more searches never give a worse plan.
  int searches = 1;
  // The number of the first search. Searches with other numbers have other random numbers.
  int first_search = 0;
  // A narrow search has fewer starts, and one of them gets most of the effort, not two. It takes
  // about half the time. Use it for plans that are near known ones.
  enum class Breadth { kUsual, kNarrow } breadth = Breadth::kUsual;
  std::stop_token stop = {};
  // Once requested, the search ends, and the best plans so far are the result.
  std::stop_token finish = {};
  // kUntilDeadline: the iteration takes until the deadline in any case, such as beside a straggler.
  // Then the energies until the deadline count, so time before it has no price.
  enum class Waiting { kUntilEnd, kUntilDeadline } waiting = Waiting::kUntilEnd;
  // The plans do not depend on this choice.
  enum class Threads { kOne, kAllCores } threads = Threads::kOne;
};

// The result for a budget before the search. It needs no plan.
struct BudgetBound {
  // The greatest bound, and the clocks that attain it. The answer does not exist if no plan is
  // within the budget and the deadline. In that case, the bound grows with the prices without end,
  // and the proof is complete once it is above the energy of every plan within the deadline.
  SwitchBound::Answer best;
  std::vector<std::vector<std::vector<int>>> latest;  // PriceAscent::latest().
};

// The bounds for PlanFewSwitches, in the order of the budgets. Fails as PlanFewSwitches.
Result<std::vector<BudgetBound>> BoundFewSwitches(const plan::Planner& planner,
                                                  Nanoseconds deadline,
                                                  std::span<const int> budgets,
                                                  const SwitchLimits& limits = {});

// Plans within `deadline` for each budget, in rising order of the budgets. Plans and bounds are
// monotone: a larger budget never has more energy or a higher bound. `known` are plans that are
// used where they fit, such as the plan without a budget. `bounds` must be for the same deadline,
// budgets and limits. If they are empty, they are computed.
//
// Fails with kInput if a budget is negative or if the budgets do not rise; with kUnreachable below
// planner.least_time(); with kSystem once a stop is requested.
Result<std::vector<BudgetPlan>> PlanFewSwitches(const plan::Planner& planner, Nanoseconds deadline,
                                                std::span<const int> budgets,
                                                std::span<const plan::Plan> known = {},
                                                const SwitchLimits& limits = {},
                                                std::vector<BudgetBound> bounds = {});

}  // namespace perseus::few_switches
