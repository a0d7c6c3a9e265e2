// Both solvers of perseus/planning/frontier find the optimum that a linear program finds.
#pragma once

#include "perseus/planning/frontier/network.h"

namespace perseus {

// Compares the walk along the frontier, the solver of one deadline, and the linear program, at 20,
// 10, 2 and 0 % above the least time. Reports a difference as a failure of the current test.
void ExpectSolversAgree(const frontier::Network& network);

}  // namespace perseus
