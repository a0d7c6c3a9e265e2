// The parts of the discrete bound that do not depend on the options that a pp_rank chooses: the
// bound of the prices alone, and the steps of every pp_rank (rank_program.h).
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
// Every flow gives a valid bound (discrete_bound.h). An optimum of the relaxation's dual gives the
// best bound without discrete options. If the deadline is the least possible time, many such optima
// exist. The discrete bound uses the waits within a pp_rank, but hardly uses the waits between
// pp_ranks. So the best of these optima has as little flow as possible on the arcs between
// pp_ranks. To find it, solve the relaxation with a slightly shorter delay (a `nudge`) on these
// arcs. If an arc then has a wait, it carries no flow.
//
// The flow of an instruction equals the flow of the dependencies into it (or from the source, if it
// has none). It also equals the flow of the dependencies out of it (or to the sink, if it has
// none).
struct DualPrices {
  std::vector<Microwatts> instructions;  // [instruction], >= 0
  std::vector<Microwatts> dependencies;  // [dependency], >= 0
  Microwatts value = 0;                  // The flow to the sink; at least planner.blocking_price().
};

// Requires that the fastest schedule meets the deadline. Fails (kSystem) after a stop request, and
// fails as frontier::SolveDeadline does.
Result<DualPrices> NudgedPrices(const plan::Planner& planner, Nanoseconds deadline,
                                Nanoseconds nudge, const std::stop_token& stop);

// An option of an instruction that no other option dominates.
struct Way {
  Nanoseconds time = 0;
  Femtojoules energy = 0;  // Effective energy, rounded down.
};
// Returns the ways of each option set, fastest first: [option set].
std::vector<std::vector<Way>> FindWays(const plan::Planner& planner);

struct PricedSteps {
  // The least energy if nothing waits: LB(x) in discrete_bound.h.
  Femtojoules base = 0;
  // The instructions of each pp_rank in order. If an instruction of a graph does not wait for the
  // previous one on its pp_rank, a new chain begins. No chain is empty.
  std::vector<std::vector<Step>> chains;
};
PricedSteps MakeSteps(const plan::Planner& planner, Nanoseconds deadline,
                      const plan::InstructionWindows& windows,
                      const std::vector<std::vector<Way>>& ways, const DualPrices& prices);

}  // namespace perseus::discrete_bound
