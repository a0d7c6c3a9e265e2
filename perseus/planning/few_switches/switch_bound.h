// A lower bound on the energy of every plan with at most N clock changes per pp_rank.
//
// IDEA
//   Take any flow x >= 0 from the source to the sink of the network (frontier/network.h), of value
//   lambda >= P*S, where S is the number of pp_ranks and P the blocking power. A plan has event
//   times pi with pi[head] - pi[tail] >= the duration of each arc. Flow is conserved, so the sum of
//   x_a * (pi[head] - pi[tail]) over all arcs is lambda times the iteration time T. Therefore
//
//     sum over instructions x_i*t_i  +  sum over dependencies x_d*delay_d  <=  lambda * T.
//
//   With T <= T0 and effective energies ê, the energy of the plan is
//
//     E = sum ê_i + P*S*T
//       >= sum (ê_i + x_i*t_i) + sum x_d*delay_d - (lambda - P*S) * T0.
//
//   Only the first sum depends on the plan, and it is a sum over pp_ranks. So its least value over
//   all plans with at most N changes is a sum of answers of SegmentProgram: the weight of clock c
//   for instruction i is ê_i(c) + x_i*t_i(c). Every flow gives a valid bound. The prices of the
//   relaxed optimum are a good start. PriceAscent (price_ascent.h) finds better ones.
//
// EXACTNESS
//   Weights are whole femtojoules (energies are rounded down). A program counts in units of 2^k fJ,
//   with the least k for which its sums are exact, and each weight is rounded down to a unit after
//   the least weight of its position was subtracted. So the result is never above the exact one.
//
// Thread safety: one thread at a time.
#pragma once

#include <vector>

#include "perseus/planning/few_switches/rank_clocks.h"
#include "perseus/planning/few_switches/segment_program.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::few_switches {

// A flow from source to sink, conserved at every node.
struct Prices {
  std::vector<Microwatts> flow;  // [arc]
  Microwatts price = 0;          // Its value, lambda.
};

class SwitchBound {
 public:
  // Keeps references to `planner` and `ranks`.
  SwitchBound(const plan::Planner& planner, const std::vector<RankClocks>& ranks,
              Nanoseconds deadline);

  struct Answer {
    bool exists = false;  // Whether any plan has so few changes, at any deadline.
    Femtojoules bound = 0;
    // [pp_rank][position] the choice that attains the bound at these prices.
    std::vector<std::vector<int>> clocks;
  };
  // Requires prices.price >= planner.blocking_price().
  Answer Solve(const Prices& prices, int changes);

  Nanoseconds deadline() const { return deadline_; }
  const std::vector<RankClocks>& ranks() const { return ranks_; }
  const plan::Planner& planner() const { return planner_; }

 private:
  // Fills the weights of the program of the pp_rank. Returns the sum of what was subtracted.
  Femtojoules SetWeights(const RankClocks& rank, const Prices& prices, SegmentProgram& program);

  const plan::Planner& planner_;
  const std::vector<RankClocks>& ranks_;
  Nanoseconds deadline_;
  std::vector<SegmentProgram> programs_;  // [pp_rank]
  std::vector<Femtojoules> weights_;      // The scratch memory of SetWeights.
  int unit_shift_ = 0;                    // A unit of the present program is 2^unit_shift_ fJ.
};

}  // namespace perseus::few_switches
