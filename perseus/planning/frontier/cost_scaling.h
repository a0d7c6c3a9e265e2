// The solver inside SolveDeadline (deadline.h): a convex-cost circulation by cost scaling.
//
// PROBLEM
//   Given: nodes with supplies b, and arcs with convex curves f. Find event times t and a flow x
//   such that on every arc a = (u, v)
//
//       x_a could rise  =>  t_v - t_u >= the duration at the flow just above x_a    (1)
//       x_a could fall  =>  t_v - t_u <= the duration at the flow just below x_a    (2)
//
//   Here the flow of an arc is the slope of its convex curve. The supply of a node is the flow out
//   of it minus the flow into it. With (1) and (2), the times are an optimal schedule, and the flow
//   is an optimal solution of its dual: a circulation of least convex cost.
//
// NOTATION
//   symbol    meaning                                           name here
//   t_u       the time of event u                               TimingSolution::times
//   p_u       the potential of u: t_u * (nodes + 1)             Node::potential
//   x_a       the flow of arc a, in microwatts                  FlowArc::flow
//   b_u       the supply of u                                   TimingProblem::supply
//   e_u       the excess of u: supply plus inflow minus outflow Node::excess
//   epsilon   by how much (1) and (2) may be violated           1 << log_epsilon
//   alpha     by how much epsilon falls in a phase: 16          1 << kLogFactor
//   n, m      the number of nodes and arcs
// In our notation, potentials rise with time. The prices of Goldberg & Tarjan have the opposite
// sign. Their reduced cost of a residual arc is Reluctance() here. Their "refine" is Refine() here,
// with the steps 3 and 4 below. A residual arc with negative reluctance is called "admissible".
//
// METHOD (Goldberg & Tarjan 1990; "partial augment-relabel", Goldberg 2008; "global update",
// Goldberg 1997)
//   Each phase
//
//     1. divides epsilon by 16;
//     2. makes the schedule feasible: no arc is shorter than its fastest time, and no node is late.
//        Without this step, step 3 would send huge flows through the arcs that are too short. Step
//        4 would send them back (1.6 times the time, measured);
//     3. sets the flow of each arc to the flow that its length requires. After that, some nodes
//        have too much flow (an excess), and other nodes have too little;
//     4. pushes the excess to the nodes that have too little flow, along arcs that violate (1) or
//        (2) slightly. If a node with an excess has no such arc, the step raises its potential.
//        Late in a phase, a few nodes have a small excess, and many nodes each need a small part of
//        it. Then the solver mirrors the problem (it reverses all arcs), so that the many nodes
//        pull the flow at the same time. This saves a fifth to a half of the work, measured.
//
// Curves are never expanded into parallel arcs. Instead, an arc stores the vertex of its curve that
// its flow is at, and looks one vertex ahead.
//
// Times are multiplied by nodes + 1, so a flow with epsilon = 1 is exactly optimal. But the solver
// usually stops the phases earlier. When epsilon is below two microseconds, few cycles with
// negative cost (in whole nanoseconds) are left. It is faster to cancel these cycles one by one
// (Goldberg & Tarjan 1989) than to run more phases. To find them, the solver uses the shortest-path
// search of Goldberg & Radzik (1993): passes over the nodes in topological order of the arcs that
// are violated or tight. When no arc is violated, the times of the search are the answer, and prove
// it optimal. The search examines at most about 500 arcs for each node. If this is not enough,
// another phase follows.
//
// CLOSE TO THE OPTIMUM
//   Event times that violate no fastest time are a schedule, and a balanced flow is a bound. Both
//   exist after every phase. The difference of their energies is at most about epsilon times the
//   sum of the flows of all arcs. With a `tolerance`, the solver stops as soon as the difference is
//   within the tolerance. With a `flow_guess` and a good guess of the times, the difference is
//   small at the start. Then the first epsilon is that difference divided by the sum of flows. One
//   or two phases remain, instead of five or more (5 to 10 times faster, measured:
//   docs/benchmarks.md).
//
// COMPLEXITY
//   For durations up to C, the solver needs O(log(n * C) / log(alpha)) phases. A phase of
//   push-relabel takes at most O(n^2 * m') operations, where m' counts each segment of a curve as
//   an arc. This is the bound of Goldberg & Tarjan for m' parallel arcs. In practice, the time of a
//   phase is nearly linear: one deadline takes n^1.1 to n^1.3, measured (docs/benchmarks.md).
//   Memory is O(n + m + vertices).
//
// LIMITS
//   Times and durations may be any integers if the sum along each path, times 8 * (nodes + 1), fits
//   64 bits. SolveDeadline checks this. All comparisons are exact.
//
// If the guess is near the optimum (the times of a similar problem), the first phases are left out:
// epsilon begins at 2^-12 of the widest curve. One solve of 1,536 instructions then takes 4 to 10
// ms instead of 20 to 25 ms. With 2^-8, it takes 13 ms. With 2^-20, the excess has to travel too
// far in small steps, and some solves take more than a second.
//
// TRIED AND SLOWER
//   LEMON's network simplex (two times slower at 1,536 instructions); curves expanded into ten
//   times as many arcs (no faster, ten times the memory); nodes numbered by time (no faster); a
//   small excess that is left to the next phase (slower); Bellman-Ford with a queue instead of
//   topological passes (four times slower, and thirty times if the flow was not yet optimal).
//
// REFERENCES
//   A. V. Goldberg and R. E. Tarjan, Finding Minimum-Cost Circulations by Successive Approximation,
//     Mathematics of Operations Research 15 (1990).
//   A. V. Goldberg, An Efficient Implementation of a Scaling Minimum-Cost Flow Algorithm,
//     Journal of Algorithms 22 (1997).
//   A. V. Goldberg, The Partial Augment-Relabel Algorithm for the Maximum Flow Problem, ESA (2008).
//   A. V. Goldberg and R. E. Tarjan, Finding Minimum-Cost Circulations by Canceling Negative
//     Cycles, Journal of the ACM 36 (1989).
//   A. V. Goldberg and T. Radzik, A Heuristic Improvement of the Bellman-Ford Algorithm, Applied
//     Mathematics Letters 6 (1993).
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <vector>

#include "perseus/base/units.h"

namespace perseus::frontier {

// Nodes are events. Node 0 happens at time 0.
struct TimingProblem {
  struct Arc {
    std::int32_t tail = 0;
    std::int32_t head = 0;
    std::int32_t first_vertex = 0;  // The fastest vertex of its curve, in `durations`.
    std::int32_t segments = 0;      // The number of vertices of its curve, minus 1.
  };

  std::int32_t nodes = 0;
  std::vector<Arc> arcs;
  // The vertices of all curves, one curve after another. Each vertex has its duration, and the
  // slope after it (0 after the last vertex of a curve).
  std::vector<Nanoseconds> durations;
  std::vector<Microwatts> slopes;
  // The flow that enters the problem at each node. The sum is 0.
  std::vector<Microwatts> supply;
  // For each node, its earliest and latest time in any feasible schedule, and a first guess.
  // Node 0 has [0, 0].
  std::vector<Nanoseconds> earliest;
  std::vector<Nanoseconds> latest;
  std::vector<Nanoseconds> guess;
  // Whether the guess is near an optimum. Then the first epsilon is smaller.
  bool guess_is_near = false;
  // The arcs in an order that repairs a schedule. To repair: start with any times within [earliest,
  // latest]. For each arc in this order, move its head later, just far enough for the fastest
  // duration of the arc. The result is feasible.
  std::vector<std::int32_t> repair_order;
  // For each arc, a flow >= 0 to start with. Empty: no flow. The flow need not be balanced.
  std::vector<Microwatts> flow_guess;
  // The maximum difference between the energy of the schedule and the bound of the flow. 0: the
  // exact optimum.
  Femtojoules tolerance = 0;
  // Only with a tolerance: the solver also stops when it knows that every schedule costs more than
  // this.
  // The cost is the extra energy of all arcs, minus the supply of each node times its time.
  std::optional<Femtojoules> most_cost = {};
};

struct TimingSolution {
  std::vector<Nanoseconds> times;  // [node]
  std::vector<Microwatts> flow;    // [arc]
};

// Requires that a feasible schedule exists. Returns nullopt if `stop` is requested before the end.
// With a tolerance, the schedule is feasible and the flow is balanced, but the arcs need not
// satisfy (1) and (2).
std::optional<TimingSolution> SolveByCostScaling(const TimingProblem& problem,
                                                 const std::stop_token& stop);

}  // namespace perseus::frontier
