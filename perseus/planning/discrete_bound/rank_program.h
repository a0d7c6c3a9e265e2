// The least cost of one pp_rank: its options and its waits, at given prices.
//
// PROBLEM
//   The steps (instructions) of a pp_rank run in order. Step k starts at S_k within its window,
//   lasts the time t of one of its choices, and ends at E_k = S_k + t within its window. It costs
//
//     reduced_cost of the choice  +  wait_price * (S_k - E_(k-1) - delay)
//       + sum over late  price * max(0, S_k - limit)
//       + sum over early price * max(0, limit - E_k).
//
//   Every term is at least 0. Find the least sum, or a lower bound on it that is close.
//
// METHOD
//   A label (t, v) of step k stands for all ways to get there that allow any start S >= t at the
//   cost v + wait_price * S. A label with t' <= t and v' <= v makes (t, v) superfluous. The window
//   is divided into cells, and the labels of a cell are merged into (least t, least v). Merging
//   only adds possibilities, so the result is never above the least cost. It is exact as long as no
//   two labels meet in a cell.
//
//   The cost of a step as a function of its start is convex. Let `slope` be its derivative minus
//   the wait price of the next step. Where slope >= 0, it is as good to start at once and to wait
//   afterwards. So a label starts at its t, and later only in cells where slope < 0. For such a
//   cell, the tangent at the cell's beginning replaces the function. It lies below the function.
//
//   The search runs with a cap: it drops what costs more. If it finds a result, this result is the
//   least cost. If not, the least cost is above the cap, and the next search has a higher cap. A
//   pp_rank that costs nothing, the usual case, needs only the first search, which keeps only a few
//   choices of each step.
//
// INTEGERS
//   The unit is 2^k fJ, with the least k for which all sums fit 64 bits. Prices and reduced costs
//   are rounded down to it. All terms are at least 0, so this can only lower the result.
//
// COMPLEXITY
//   O(steps * cells * choices) for each cap. Thread safety: no shared state.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "perseus/base/units.h"

namespace perseus::discrete_bound {

// A price for each nanosecond beyond a limit.
struct Penalty {
  Microwatts price = 0;
  Nanoseconds limit = 0;
};

struct Choice {
  Nanoseconds time = 0;
  Femtojoules reduced_cost = 0;  // >= 0
};

struct Step {
  Nanoseconds earliest_start = 0;
  Nanoseconds latest_end = 0;  // At least earliest_start plus the least time.
  // The delay after the end of the previous step. The first step has no delay, and no wait price.
  Nanoseconds delay = 0;
  Microwatts wait_price = 0;         // >= 0
  std::vector<Penalty> late = {};    // For a start after the limit.
  std::vector<Penalty> early = {};   // For an end before the limit.
  std::vector<Choice> choices = {};  // At least one, fastest first.
};

struct ProgramLimits {
  Femtojoules first_cap = 0;  // At least 1 fJ.
  std::int64_t work = 0;      // The most choices that all searches try together.
  std::stop_token stop = {};
};

struct LeastCost {
  Femtojoules at_least = 0;  // The least cost is not below this.
  std::int64_t work = 0;     // Choices tried.
  bool complete = false;     // False: the work limit or a stop request ended the search.
};

// Requires at least one step, and windows as propagated from the fastest times.
LeastCost FindLeastCost(std::span<const Step> steps, const ProgramLimits& limits);

}  // namespace perseus::discrete_bound
