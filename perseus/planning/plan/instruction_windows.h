// When each instruction may run in a plan within a deadline.
//
// Thread safety: no shared state.
#pragma once

#include <vector>

#include "perseus/base/units.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::plan {

// In every plan within the deadline, instruction i starts at earliest_starts[i] or later and ends
// at latest_ends[i] or earlier: what the fastest times of all other instructions leave.
struct InstructionWindows {
  std::vector<Nanoseconds> earliest_starts;  // [instruction]
  std::vector<Nanoseconds> latest_ends;      // [instruction]
};
// Requires that the fastest schedule meets the deadline.
InstructionWindows FindWindows(const Planner& planner, Nanoseconds deadline);

}  // namespace perseus::plan
