// The parts of the discrete bound that do not depend on a pp_rank's choice: the bound of the prices
// alone, and the steps of every pp_rank (rank_program.h).
#pragma once

#include <stop_token>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/discrete_bound/rank_program.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::discrete_bound {

// Prices for the discrete bound: a flow from the source to the sink of the instruction graph.
//
// Every flow gives a valid bound (discrete_bound.h). The dual optimum of the relaxation gives the
// best bound without discrete options, but it is far from unique where the deadline is the least
// possible time. The discrete bound uses the waits within a pp_rank, and hardly those between
// pp_ranks. So we want the optimum that charges as little as possible for the arcs between
// pp_ranks. The relaxation with a slightly shorter delay (a `nudge`) on these arcs has such an
// optimum: an arc that a small nudge relieves carries no flow.
//
// For every instruction, the flow of the dependencies into it (or from the source, if it has none)
// is its own flow, and so is the flow of the dependencies out of it (or to the sink).
struct DualPrices {
  std::vector<Microwatts> instructions;  // [instruction], >= 0
  std::vector<Microwatts> dependencies;  // [dependency], >= 0
  Microwatts value = 0;                  // From source to sink; at least planner.blocking_price().
};

// Requires that the fastest schedule meets the deadline. Fails (kSystem) once `stop` is requested,
// and as frontier::SolveDeadline does.
Result<DualPrices> NudgedPrices(const plan::Planner& planner, Nanoseconds deadline,
                                Nanoseconds nudge, const std::stop_token& stop);

// The options of an instruction that no other option dominates, fastest first.
struct Way {
  Nanoseconds time = 0;
  Femtojoules energy = 0;  // Effective energy, rounded down.
};
// [option set]
std::vector<std::vector<Way>> FindWays(const plan::Planner& planner);

struct PricedSteps {
  // The least energy if nothing waits: LB(x) in discrete_bound.h.
  Femtojoules base = 0;
  // The instructions of each pp_rank in order. Where a graph does not say that an instruction waits
  // for the one before it on its pp_rank, a new chain begins. None is empty.
  std::vector<std::vector<Step>> chains;
};
PricedSteps MakeSteps(const plan::Planner& planner, Nanoseconds deadline,
                      const plan::InstructionWindows& windows,
                      const std::vector<std::vector<Way>>& ways, const DualPrices& prices);

}  // namespace perseus::discrete_bound
