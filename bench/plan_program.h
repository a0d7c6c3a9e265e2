// The discrete planning problem as a mixed-integer program, solved by COIN-OR CBC. It shows how
// good a plan could be. It shares no idea and no code with perseus/planning/plan.
//
//     minimize   sum over instructions i, options o of  e_io * z_io  +  pp_ranks * P * length
//     subject to one option each:      sum over o of z_io = 1
//                precedence:           start_j >= start_i + sum over o of t_io * z_io + delay
//                deadline:             start_i + sum over o of t_io * z_io <= length <= deadline
//                z binary, start >= 0
//
// where e is effective energy (profile/curve.h) and options are those on the Pareto front. So the
// objective is the energy of the iteration, waiting included, as evaluation.h counts it.
#pragma once

#include <vector>

#include "bench/mixed_program.h"
#include "perseus/base/units.h"
#include "perseus/planning/plan/planner.h"

namespace perseus {

// The answers of CBC are doubles. They are right up to its tolerances, about 1e-6 ms.
struct ProgramOptimum {
  bool proved = false;       // Whether CBC has proved that no better plan exists.
  std::vector<int> options;  // [instruction] an index into its option set; empty if none is found.
  double energy_j = 0;       // The energy of `options` according to CBC.
  double lower_bound_j = 0;  // No plan needs less energy.
};

// Requires a planner without switch latency.
ProgramOptimum SolvePlanProgram(const plan::Planner& planner, Nanoseconds deadline,
                                const ProgramLimits& limits);

}  // namespace perseus
