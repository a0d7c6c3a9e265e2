// Plans with few clock changes, each with its own lower bound on the energy (its certificate).
//
// A plan of planner.h changes the clock of a GPU at almost every instruction: about ten times a
// second. A change takes milliseconds and a lock in the driver, and frequent changes disturb
// collectives. This module plans for a budget of clock changes: at most N of them per pp_rank and
// iteration. An iteration repeats, so the change back at its end counts. A single change is
// impossible, because the clock has to change back. So a budget of 1 means 0.
//
// For every budget, the result has two parts: the best plan that a limited effort finds, and a
// lower bound on the energy of all plans within that budget and deadline. The bound shows what the
// budget costs, because no search can find a plan below the bound.
//
// DESIGN
//   Bound. The module puts a price of time on each instruction (the prices are a flow). The
//   energies of the pp_ranks then separate. For one pp_rank, a dynamic program over its clocks
//   finds the best sequence with at most N changes exactly (switch_bound.h, segment_program.h). The
//   optimum of the planner's relaxation (planner.h) has such prices, and they give a bound at once.
//   This bound is loose for small N, because these prices assume that every instruction chooses its
//   clock independently. Candidates to improve the prices were:
//     - column generation: needs a linear-programming solver in the planner, with a row for every
//       dependency;
//     - a subgradient or bundle method in the flows: after every step, flow is no longer conserved,
//       and the way back to a conserved flow is a network problem;
//     - mirror ascent over paths (price_ascent.h): every step is one pass over the arcs. The result
//       of each step is a flow, so each step proves a bound. Chosen: after 40 steps, the bounds
//       differ from those of column generation by at most 0.1 points. For 12 microbatches, this
//       takes a few milliseconds.
//
//   Search. The clocks of a pp_rank are a ring of segments (ring.h). Candidates were:
//     - the best sequences at the best prices, then a repair: fast, but all pp_ranks react to the
//       same price. So where clocks are coarse, the result is far too late or far too early;
//     - a mixed-integer program: does not finish for 12 microbatches;
//     - local search over boundaries and clocks with exact times (segment_search.h). Chosen, as
//       simulated annealing. It starts from the sequences of the bound, from the best plan with
//       fewer changes, and from given plans. The result is the best plan that meets the deadline.
//
//   The effort is a number of steps, not of seconds. The module uses no function whose value
//   differs between machines. So the same input gives the same plans everywhere.
//
//   A clock change may stall the GPU, use energy, and take effect late (a switch latency). The
//   search includes all three in its exact times and energies. The dynamic program includes them as
//   far as it knows them (switch_bound.h).
//
// LIMITS
//   In a real plan, a pp_rank runs one sequence of clocks. The bound also allows a mixture: several
//   sequences, each with a weight. With windows, each sequence of a mixture must be in time by
//   itself (window_program.h). If a job is not small and has more than four changes, the bound uses
//   windows only with more effort than the default. So where clocks are coarse, the bound stays
//   below the energy of even the best plan. With a switch latency, the bound is looser than without
//   one.
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
  int most_changes = 0;  // Per pp_rank, in an iteration that repeats.
  // No plan within the budget and the deadline has less energy. Infinite if such a plan certainly
  // does not exist. Example for a budget of 0: the instructions of a pp_rank share no measured
  // clock, or only clocks that are too slow for the deadline.
  double lower_bound_j = 0;
  // The best plan that was found, with the bound above as its lower_bound_j. nullopt if the search
  // found no plan that meets the deadline.
  std::optional<plan::Plan> plan;
  std::vector<int> changes;  // [pp_rank] The changes of the plan, at most most_changes.
  // False if a finish was requested before the search for this budget began. Then the plan is the
  // plan of a smaller budget, a known plan, or nullopt.
  bool is_searched = true;
};

struct SwitchLimits {
  // Relative effort. 1 takes about 2 s for eight budgets and 1,536 instructions on one core.
  double effort = 1;
  // The number of searches for each budget. Each further search starts from the plans of the
  // earlier searches and uses other random numbers than they do. So more searches never give a
  // worse plan.
  int searches = 1;
  // The number of the first search. It selects the random numbers: searches with different numbers
  // use different ones.
  int first_search = 0;
  // A usual search spends most of its effort on the two best of its starts. A narrow search has
  // fewer starts, and spends most of its effort on the best one. It takes about half the time. Use
  // it for plans that are near known plans.
  enum class Breadth { kUsual, kNarrow } breadth = Breadth::kUsual;
  std::stop_token stop = {};
  // When a finish is requested, the search ends, and the best plans so far are the result.
  std::stop_token finish = {};
  // kUntilDeadline: the iteration ends at the deadline in any case, for example because the
  // pipeline waits for a straggler. Then energies are counted until the deadline, so time before
  // the deadline has no price.
  enum class Waiting { kUntilEnd, kUntilDeadline } waiting = Waiting::kUntilEnd;
  // The plans do not depend on this choice.
  enum class Threads { kOne, kAllCores } threads = Threads::kOne;
};

// The bound for a budget. It is computed before the search, without a plan.
struct BudgetBound {
  // The greatest bound, and the clocks that attain it. If no plan is within the budget and the
  // deadline, best.exists is false. In that case, the bound could grow with the prices without
  // limit. The computation stops when the bound is above the energy of every plan within the
  // deadline, which proves that no plan exists.
  SwitchBound::Answer best;
  std::vector<std::vector<std::vector<int>>> latest;  // As in PriceAscent::latest().
};

// Returns the greatest possible number of changes on a pp_rank: one change at each instruction with
// a clock. A budget of this size is no limit.
int MostPossibleSwitches(const schedule::InstructionGraph& graph);

// The bounds for PlanFewSwitches, in the order of the budgets. Fails as PlanFewSwitches does.
Result<std::vector<BudgetBound>> BoundFewSwitches(const plan::Planner& planner,
                                                  Nanoseconds deadline,
                                                  std::span<const int> budgets,
                                                  const SwitchLimits& limits = {});

// Returns a plan within `deadline` for each budget. The budgets must rise. Plans and bounds are
// monotone: a larger budget never has more energy or a higher bound. `known` are plans that may be
// part of the result if they are within a budget. An example is the plan without a budget. `bounds`
// must be for the same deadline, budgets and limits. If `bounds` is empty, the function computes
// them.
//
// Fails with kInput if a budget is negative or if the budgets do not rise. Fails with kUnreachable
// if `deadline` is below planner.least_time(). Fails with kSystem after a stop request.
Result<std::vector<BudgetPlan>> PlanFewSwitches(const plan::Planner& planner, Nanoseconds deadline,
                                                std::span<const int> budgets,
                                                std::span<const plan::Plan> known = {},
                                                const SwitchLimits& limits = {},
                                                std::vector<BudgetBound> bounds = {});

}  // namespace perseus::few_switches
