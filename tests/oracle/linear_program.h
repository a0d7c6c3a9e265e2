// The planner's relaxation as a linear program, solved by COIN-OR CLP. This oracle shares neither
// algorithm nor code with the solvers of perseus/planning/frontier.
#pragma once

#include "perseus/planning/frontier/network.h"

namespace perseus {

// CLP's result for the least extra energy. CLP computes with doubles, and only up to tolerances.
// But any dual solution proves a lower bound (weak duality). `proved_j` is computed only from the
// dual values. So it is a valid bound even if the dual values are inexact: the exact optimum is
// never below it.
struct LinearOptimum {
  bool solved = false;
  double objective_j = 0;
  double proved_j = 0;
  // How far `proved_j` may lie below the optimum, because CLP treats small reduced costs as zero.
  // The value is CLP's dual tolerance times the range of each variable. It matters only if the
  // energy is about 0.
  double slack_j = 0;
};

// The units of the program. In these units, typical durations and slopes are between 1 and 1,000.
// This keeps the rounding errors of CLP small.
struct ProgramUnits {
  Nanoseconds time = 1;
  Microwatts slope = 1;
};
// Finds the least extra energy of a schedule that takes at most `deadline`.
LinearOptimum SolveLinearProgram(const frontier::Network& network, Nanoseconds deadline,
                                 const ProgramUnits& units);

}  // namespace perseus
