// The planner's relaxation as a linear program, solved by COIN-OR CLP: an oracle that shares no
// idea and no code with the solvers of src/frontier.
#pragma once

#include "perseus/planning/frontier/network.h"

namespace perseus {

// What CLP says of the least extra energy. Its answers are doubles and hold up to tolerances; but
// any dual solution proves a lower bound (weak duality), so `proved_j` is computed from the duals
// alone and holds however rough they are. An exact optimum lies on it or above.
struct LinearOptimum {
  bool solved = false;
  double objective_j = 0;
  double proved_j = 0;
  // By how much `proved_j` may fall short because CLP takes small reduced costs for zero: its dual
  // tolerance times the range of each variable. Matters only where the energy itself is about 0.
  double slack_j = 0;
};

// The least extra energy of a schedule of at most `deadline`. A unit of time in the program is
// `time_unit`, so that typical durations are between 1 and 1,000 there; likewise for slopes.
struct ProgramUnits {
  Nanoseconds time = 1;
  Microwatts slope = 1;
};
LinearOptimum SolveLinearProgram(const frontier::Network& network, Nanoseconds deadline,
                                 const ProgramUnits& units);

}  // namespace perseus
