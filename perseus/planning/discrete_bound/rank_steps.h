// The parts of the discrete bound that do not depend on a pp_rank's choice: the bound of the prices
// alone, and the steps of every pp_rank (rank_program.h).
#pragma once

#include <vector>

#include "perseus/base/units.h"
#include "perseus/planning/discrete_bound/dual_prices.h"
#include "perseus/planning/discrete_bound/rank_program.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::discrete_bound {

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
