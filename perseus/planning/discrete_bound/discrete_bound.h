// A lower bound on the energy of every plan. Unlike the bound of the relaxation, it uses that a GPU
// runs measured options only, and no mixtures of them.
//
// WHY
//   The bound of the relaxation (frontier/) lets each instruction run at any point of the hull of
//   its options. With no slowdown, where the deadline is the least possible time, the bottleneck
//   fixes the times of the pp_ranks next to it: each pair of a backward and a forward has to fit
//   into one period of the bottleneck by itself. A pair of measured options leaves a part of the
//   period unused, and no other pair can use it. This bound counts such parts.
//
// THE IDENTITY
//   Let x be a flow from the source to the sink of the instruction graph, of value lambda >= P*S
//   (rank_steps.h). Take a plan with the options o, effective energies ê_i, times t_i, starts S_i,
//   ends F_i = S_i + t_i and iteration time T <= T0. Flow is conserved, so the sum of x times the
//   lengths of all instructions, dependencies, and the ways from the source and to the sink, is
//   lambda * T. Therefore its energy is exactly
//
//     E = LB(x) + sum_i rc_i(o_i) + sum_d x_d*wait_d + (lambda - P*S)*(T0 - T)
//
//     LB(x)    = sum_i min_o (ê_i(o) + x_i*t_i(o)) + sum_d x_d*delay_d - (lambda - P*S)*T0
//     rc_i(o)  = ê_i(o) + x_i*t_i(o) - min              >= 0
//     wait_d   = S_to - F_from - delay_d                >= 0
//
//   where d also runs over the waits from time 0 to the first starts, and from the last ends to T.
//   LB(x) is the bound of linear programming duality: for an optimal x, the bound of the
//   relaxation. The other terms are what a plan pays above it.
//
// THE BOUND
//   Each term goes to one pp_rank, and each pp_rank then pays at least its own least sum over all
//   of its options and starts (rank_program.h). A reduced cost belongs to the pp_rank of its
//   instruction. So does the wait between two neighbors on a pp_rank. The wait of any other
//   dependency involves two instructions that need not be neighbors. With the windows that the
//   fastest times leave at the deadline, ends F <= latest and starts S >= earliest, it is at least
//
//     max(0, S_to - latest_from - delay)    or    max(0, earliest_to - F_from - delay),
//
//   a cost of the pp_rank of `to`, or of the pp_rank of `from`. The narrower of the two windows
//   says more about the wait, so it decides which form counts. The last wait is at least T_min - F.
//   The term (lambda - P*S)*(T0 - T) is dropped.
//
//   A pp_rank with wide windows pays nothing: it can mix two options of reduced cost 0 over time.
//   What makes it pay are narrow windows. So this bound is above the relaxation's only near the
//   least possible time: for GPT-3 on A100, nothing is gained at 0.1 % slowdown
//   (docs/benchmarks.md).
//
// EXACTNESS
//   All numbers are integers. Energies are rounded down to femtojoules. Dominated options are left
//   out: to replace one by the option that dominates it makes a plan neither later nor more
//   expensive.
//
// LIMITS
//   With a switch latency, instructions are mixtures of options, so nothing is gained. A switch
//   cost only makes plans slower and more expensive, so the bound holds, and ignores the cost. Any
//   schedule and any graph is allowed. An instruction that does not wait for the one before it on
//   its pp_rank begins a sequence of its own.
#pragma once

#include <cstdint>
#include <stop_token>

#include "perseus/base/result.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::discrete_bound {

struct BoundLimits {
  // The most choices that the search for one set of prices tries. If the search ends early, the
  // bound is still valid. A choice takes about 5 ns.
  std::int64_t work = 10'000'000;
  std::stop_token stop = {};
};

struct DiscreteBound {
  // No plan that meets the deadline has less energy (in joules). It may be below
  // Planner::BoundFor(deadline) by a little if nothing is gained.
  double lower_bound_j = 0;
  std::int64_t work = 0;  // The choices tried.
};

// Deterministic. Fails with kUnreachable below planner.least_time(), and with kSystem once a stop
// is requested.
Result<DiscreteBound> BoundDiscretePlans(const plan::Planner& planner, Nanoseconds deadline,
                                         const BoundLimits& limits = {});

// Whether BoundDiscretePlans can be expected to be above the bound of the relaxation. It cannot
// with a switch latency. It hardly can if every instruction can be late by more than the largest
// step between the times of two neighboring options: then one option more or less always fits.
// O(options).
bool MayGain(const plan::Planner& planner, Nanoseconds deadline);

// Replaces `lower_bound_j` of the plan by the discrete bound for its deadline if MayGain() and the
// discrete bound is greater. The plan keeps its bound if the computation fails, for example because
// of a stop request.
void RaiseBound(const plan::Planner& planner, plan::Plan& plan, const BoundLimits& limits = {});

}  // namespace perseus::discrete_bound
