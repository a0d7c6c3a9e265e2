// A lower bound on the energy of every plan. It is often higher than the bound of the relaxation.
// The reason: it knows that a GPU runs only measured options, and no mixtures of options.
//
// WHY
//   In the bound of the relaxation (frontier/), each instruction may run at any point of the hull
//   of its options. With no slowdown, the deadline is the least possible time. Then the slowest
//   pp_rank (the bottleneck) fixes the times of the neighboring pp_ranks: each pair of a backward
//   and a forward has to fit into one period of the bottleneck. A pair of measured options leaves a
//   part of the period unused, and no other pair can use this part. This bound counts such parts.
//
// THE IDENTITY
//   Let P be the blocking power of a pp_rank, and S the number of pp_ranks. Let x be a flow from
//   the source to the sink of the instruction graph, of value lambda >= P*S (rank_steps.h). Take a
//   plan with the options o, effective energies ê_i, times t_i, starts S_i, ends F_i = S_i + t_i
//   and iteration time T <= T0. Flow is conserved. Take all instructions, all dependencies, and the
//   ways from the source and to the sink. The sum of x times their lengths is lambda * T. So the
//   energy of the plan is exactly
//
//     E = LB(x) + sum_i rc_i(o_i) + sum_d x_d*wait_d + (lambda - P*S)*(T0 - T)
//
//     LB(x)    = sum_i min_o (ê_i(o) + x_i*t_i(o)) + sum_d x_d*delay_d - (lambda - P*S)*T0
//     rc_i(o)  = ê_i(o) + x_i*t_i(o) - min              >= 0
//     wait_d   = S_to - F_from - delay_d                >= 0
//
//   Here d also runs over the waits from time 0 to the first starts, and from the last ends to T.
//   LB(x) is the bound of linear programming duality. If x is optimal, LB(x) is the bound of the
//   relaxation. The other terms are the energy of the plan above LB(x).
//
// THE BOUND
//   Each term is assigned to one pp_rank. Each pp_rank then costs at least its own least sum over
//   all of its options and starts (rank_program.h). A reduced cost is assigned to the pp_rank of
//   its instruction. The wait between two neighbors on a pp_rank is assigned to this pp_rank. The
//   wait of any other dependency involves two instructions that need not be neighbors. Each
//   instruction has a window: if all other instructions run at their fastest times, it has to start
//   at `earliest` or later, and to end at `latest` or earlier. So this wait is at least
//
//     max(0, S_to - latest_from - delay)    or    max(0, earliest_to - F_from - delay),
//
//   The first form is a cost of the pp_rank of `to`, and the second form is a cost of the pp_rank
//   of `from`. The narrower of the two windows gives the better bound on the wait, so it decides
//   which form is used. The wait from an end F to the end of the iteration is at least T_min - F,
//   where T_min is the least possible time. The term (lambda - P*S)*(T0 - T) is dropped.
//
//   A pp_rank with wide windows costs nothing: it can mix two options with a reduced cost of 0 over
//   time. Only narrow windows cause a cost. So this bound is above the bound of the relaxation only
//   near the least possible time: for GPT-3 on A100, both are equal at 0.1 % slowdown
//   (docs/benchmarks.md).
//
// EXACTNESS
//   All numbers are integers. Energies are rounded down to femtojoules. Dominated options are left
//   out: if the dominating option replaces one, the plan does not become later or more expensive.
//
// LIMITS
//   With a switch latency, instructions are mixtures of options, so this bound is not better than
//   the bound of the relaxation. A switch cost only makes plans slower and more expensive, so the
//   bound is still valid, but ignores the cost. Any schedule and any graph is allowed. If an
//   instruction does not wait for the previous one on its pp_rank, it begins a new sequence.
#pragma once

#include <cstdint>
#include <stop_token>

#include "perseus/base/result.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::discrete_bound {

struct BoundLimits {
  // The maximum number of choices that the search for one set of prices tries. If the search ends
  // early, the bound is still valid. A choice takes about 5 ns.
  std::int64_t work = 10'000'000;
  std::stop_token stop = {};
};

struct DiscreteBound {
  // No plan that meets the deadline has less energy (in joules). If this bound is not better than
  // Planner::BoundFor(deadline), it may be a little below it.
  double lower_bound_j = 0;
  std::int64_t work = 0;  // The number of choices that were tried.
};

// Deterministic. Fails with kUnreachable if `deadline` is below planner.least_time(), and with
// kSystem after a stop request.
Result<DiscreteBound> BoundDiscretePlans(const plan::Planner& planner, Nanoseconds deadline,
                                         const BoundLimits& limits = {});

// Whether BoundDiscretePlans will probably be above the bound of the relaxation. With a switch
// latency, it cannot be. Without one, compare two times: the deadline minus the least possible
// time, and the largest step between the times of two neighboring options. If the first time is at
// least as long as the second one, the bound is rarely above: every instruction has enough slack
// for the next slower option. O(options).
bool MayGain(const plan::Planner& planner, Nanoseconds deadline);

// Replaces `lower_bound_j` of the plan by the discrete bound for its deadline, if MayGain() is true
// and the discrete bound is greater. If the computation fails (for example, because of a stop
// request), the plan keeps its bound.
void RaiseBound(const plan::Planner& planner, plan::Plan& plan, const BoundLimits& limits = {});

}  // namespace perseus::discrete_bound
