// Planning with at most N clock changes per pp_rank as a mixed-integer program, solved by COIN-OR
// CBC. It shows how good such a plan could be. It shares no idea and no code with
// perseus/planning/few_switches.
//
//     minimize   sum over i, c of ê_ic * z_ic  +  sum of J * y_i  +  pp_ranks * P * length
//     subject to one clock each:    sum over c of z_ic = 1
//                changes:           y_i >= z_ic - z_hc      for every c; h runs before i on the
//                same
//                                                           pp_rank, around the ring of iterations
//                the limit:         sum over i of a pp_rank of y_i <= N
//                duration:          d_i = sum over c of t_ic * z_ic  +  stall * y_i
//                precedence:        start_j >= start_i + d_i + delay
//                deadline:          start_i + d_i <= length <= deadline
//                z binary, y and start >= 0
//
// c are the combinations of frequency and other knobs at which an instruction of the pp_rank was
// measured, ê is effective energy, and J and stall are the switch cost. A switch latency depends
// on the order of events and is not part of the program.
#pragma once

#include <vector>

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
ProgramOptimum SolveSwitchProgram(const plan::Planner& planner, Nanoseconds deadline,
                                  int most_changes, double most_seconds);

}  // namespace perseus
