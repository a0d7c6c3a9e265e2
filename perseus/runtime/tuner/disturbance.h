// Steps that do not count, because something else than the power limit held a clock down, and what
// to do about it.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "perseus/runtime/tuner/job_logs.h"

namespace perseus::tuner {

struct Disturbance {
  int steps = 0;     // That do not count.
  int of_steps = 0;  // All that were recorded.
  // As `limited_by` of the rank log. Empty for a step that does not name it.
  std::set<std::string> causes;
};

// The disturbance of the steps from `first` to `last`.
Disturbance DisturbanceOf(const LoggedRank& rank, std::int64_t first, std::int64_t last);

// Such as "heat held its clock down (cool the GPU)". Requires causes.
std::string Describe(const Disturbance& disturbance);

}  // namespace perseus::tuner
