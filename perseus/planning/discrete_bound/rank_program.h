// The least cost of the options and the waits of one pp_rank, at given prices.
//
// PROBLEM
//   The steps (instructions) of a pp_rank run in order. Step k has a window. It starts at S_k
//   within the window, lasts the time t of one of its choices, and ends at E_k = S_k + t within the
//   window. Its `late` penalties are for a start after a limit, and its `early` penalties for an
//   end before a limit. It costs
//
//     reduced_cost of the choice  +  wait_price * (S_k - E_(k-1) - delay)
//       + sum over late  price * max(0, S_k - limit)
//       + sum over early price * max(0, limit - E_k).
//
//   Every term is at least 0. Find the least sum, or a lower bound on it that is close.
//
// METHOD
//   A label (t, v) of step k stands for a set of ways to reach the step. Each of them allows any
//   start S >= t, at the cost v + wait_price * S. If another label has t' <= t and v' <= v, the
//   label (t, v) is dropped. The window is divided into cells, and the labels of a cell are merged
//   into (least t, least v). Merging only adds possibilities, so the result is never above the
//   least cost. The result is exact if no two labels are in the same cell.
//
//   The cost of a step as a function of its start is convex. Let `slope` be the derivative of this
//   function minus the wait price of the next step. Where slope >= 0, an early start and a wait
//   afterwards cost no more than a later start. So each label tries the start at its t. It tries
//   later starts only in cells where slope < 0. In such a cell, the tangent at the beginning of the
//   cell replaces the function. The tangent is below the function, so the result is still a lower
//   bound.
//
//   The search has a cap: it drops every label that costs more. If it finds a result, this result
//   is the least cost. If not, the least cost is above the cap, and the next search has a higher
//   cap. Most pp_ranks cost nothing. They need only the first search, which keeps only a few
//   choices of each step.
//
// INTEGERS
//   The unit is 2^k fJ, with the least k for which all sums fit 64 bits. Prices and reduced costs
//   are rounded down to this unit. All terms are at least 0, so rounding can only lower the result.
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
  std::int64_t work = 0;      // The maximum number of choices tried by all searches together.
  std::stop_token stop = {};
};

struct LeastCost {
  Femtojoules at_least = 0;  // The least cost is not below this.
  std::int64_t work = 0;     // The number of choices that were tried.
  bool complete = false;     // False: the work limit or a stop request ended the search.
};

// Requires at least one step, and windows that were computed from the fastest times.
LeastCost FindLeastCost(std::span<const Step> steps, const ProgramLimits& limits);

}  // namespace perseus::discrete_bound
