// The discrete planning problem as a mixed-integer program, solved by COIN-OR CBC: how good could
// any plan be? It shares no idea and no code with src/plan.
//
//     minimise   sum over instructions i, options o of  e_io * z_io  +  ranks * P * length
//     subject to one option each:      sum over o of z_io = 1
//                precedence:           start_j >= start_i + sum over o of t_io * z_io + delay
//                deadline:             start_i + sum over o of t_io * z_io <= length <= deadline
//                z binary, start >= 0
//
// where e is effective energy (profile/curve.h) and options are those on the Pareto front. So the
// objective is the energy of the iteration, waiting included, as evaluation.h counts it.
#pragma once

#include <string>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/planning/plan/planner.h"

namespace perseus {

struct ProgramLimits {
  double seconds = 300;
  enum class Report { kSilent, kProgress } report = Report::kSilent;  // On standard output.
  // Where to start from: a plan's options. Empty: from nothing.
  std::vector<int> start = {};
};

// CBC's answers are doubles and hold up to its tolerances (1e-6 of a millisecond, about).
struct ProgramOptimum {
  bool proved = false;       // Nothing better exists.
  std::vector<int> options;  // Per instruction, an index into its option set; empty if none found.
  double energy_j = 0;       // Of `options`, by the program.
  double lower_bound_j = 0;  // No plan costs less.
};

// Requires a planner without switching latency.
ProgramOptimum SolvePlanProgram(const plan::Planner& planner, Nanoseconds deadline,
                                const ProgramLimits& limits);

}  // namespace perseus
