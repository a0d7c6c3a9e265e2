// A lower bound on the energy of every plan with at most N clock changes per pp_rank.
//
// IDEA
//   Let S be the number of pp_ranks and P the blocking power of each. Take any flow x >= 0 from the
//   source to the sink of the network (frontier/network.h), of value lambda >= P*S. A plan has
//   event times pi with pi[head] - pi[tail] >= the duration of each arc. Flow is conserved, so the
//   sum of x_a * (pi[head] - pi[tail]) over all arcs is lambda times the iteration time T.
//   Therefore
//
//     sum over instructions x_i*t_i  +  sum over dependencies x_d*delay_d  <=  lambda * T.
//
//   With T <= T0 and effective energies ê, the energy of the plan is
//
//     E = sum ê_i + P*S*T
//       >= sum (ê_i + x_i*t_i) + sum x_d*delay_d - (lambda - P*S) * T0.
//
//   Only the sum over (ê_i + x_i*t_i) depends on the plan. It splits into one sum for each pp_rank.
//   So its least value over all plans with at most N changes is a sum of answers of SegmentProgram.
//   There, clock c has the weight ê_i(c) + x_i*t_i(c) for instruction i. Every flow gives a valid
//   bound. The prices of the planner's relaxed optimum are a good start. PriceAscent
//   (price_ascent.h) finds better prices.
//
// WINDOWS
//   The window of an instruction is the time in which it can run if all other instructions run at
//   their fastest times. Every plan within T0 keeps all windows. So the bound may use the least
//   value over only those sequences that keep the windows (window_program.h).
//
//   This value may be higher than the one over all sequences. The reason: at the best prices
//   without windows, a mixture of sequences may be optimal. One of these sequences may be too slow
//   for its windows. Both values are valid bounds at any prices. At the best prices without
//   windows, the windows raise the bound very little: at these prices, a sequence in time costs as
//   little as one that is too slow. So further steps of the ascent, which keep the windows, raise
//   the bound.
//
//   With a switch latency, windows are not used. The COSTS section replaces an instruction at two
//   clocks by one at a single clock that weighs no more. At this single clock, the instruction may
//   take longer than in the plan, and so may break a window that the plan keeps.
//
// COSTS
//   A switch cost has a stall of length s and an energy J. A change at instruction i then costs
//   x_i*s + J. The reason: the stall makes i longer. During the stall, the GPU draws the blocking
//   power, which effective energies leave out.
//
//   With a switch latency, some instructions after a change run at the previous clock, entirely or
//   partly. The weight of a mix of two clocks is at least the smaller of their weights. So for
//   every real plan, a plan without mixes exists that has no more changes and weighs no more. In
//   this plan, each change may come later than in the real plan. The program can choose this plan.
//   If the later change cost more than the real change, the bound would be wrong. So a change costs
//   the least of its own cost and the costs at the positions before it, as far back as a latency
//   reaches. If an instruction was not measured at a clock, the values of the nearest measured
//   clock count, as in plan/evaluation.h.
//
// EXACTNESS
//   Weights are whole femtojoules (energies are rounded down). The program subtracts the least
//   weight of each position. Then it counts in units of 2^k fJ, with the least k for which its sums
//   are exact. Each weight is rounded down to a unit. So the result is never above the exact one.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "perseus/planning/few_switches/rank_clocks.h"
#include "perseus/planning/few_switches/segment_program.h"
#include "perseus/planning/few_switches/window_program.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::few_switches {

// Prices of time: a flow from source to sink, conserved at every node.
struct Prices {
  std::vector<Microwatts> flow;  // [arc]
  Microwatts price = 0;          // The value of the flow, lambda.
  // [instruction] The price of a stall before the instruction. Empty: the same as `flow`.
  std::vector<Microwatts> of_stalls = {};
};

class SwitchBound {
 public:
  // Keeps references to `planner` and `ranks`. `least_price` is the least price of time: the
  // planner's blocking_price(), or 0 for a bound on the energy until the deadline. With
  // `on_all_cores`, the pp_ranks of a large job are solved at the same time.
  SwitchBound(const plan::Planner& planner, const std::vector<RankClocks>& ranks,
              Nanoseconds deadline, Microwatts least_price, bool on_all_cores = false);

  struct Answer {
    bool exists = false;  // Whether a plan with at most `changes` changes exists at any deadline.
    Femtojoules bound = 0;
    // [pp_rank][position] The choice that attains the bound at these prices.
    std::vector<std::vector<int>> clocks;
    // [pp_rank] The positions at which the changes of these clocks cost what the bound counts.
    std::vector<std::vector<int>> stalls;
    std::int64_t work = 0;  // The number of labels of window_program.h.
  };
  enum class Windows { kIgnore, kKeep };
  // Requires prices.price >= least_price(), and has_windows() to keep windows.
  Answer Solve(const Prices& prices, int changes, Windows windows = Windows::kIgnore);

  bool has_windows() const { return !has_latency_; }

  Nanoseconds deadline() const { return deadline_; }
  Microwatts least_price() const { return least_price_; }
  const std::vector<RankClocks>& ranks() const { return ranks_; }
  const plan::Planner& planner() const { return planner_; }

 private:
  // The programs of a pp_rank, and their scratch memory.
  struct RankProgram {
    SegmentProgram program;
    std::optional<WindowProgram> window_program = {};  // nullopt with a latency.
    // The result of the latest search minus the least cost without windows. A guess for the next
    // search.
    Femtojoules excess = 0;
    int lateness = 0;  // By how many positions a change may take effect late.
    std::vector<Femtojoules> weights = {};
    std::vector<Femtojoules> change_costs = {};  // [position]
    std::vector<int> cost_positions = {};        // [position] Where the cost of a change is least.
    int unit_shift = 0;                          // A unit is 2^unit_shift fJ.
  };
  // The part of an answer that a pp_rank adds.
  struct Part {
    bool exists = true;
    Femtojoules bound = 0;
    std::vector<int> clocks = {};
    std::vector<int> stalls = {};
    std::int64_t work = 0;
  };

  // Whether the solution of all programs takes much longer than the start of a thread.
  bool IsLong(int changes, Windows windows) const;
  Part SolveRank(std::size_t pp_rank, const Prices& prices, int changes, Windows windows);
  // Fills the weights of the program of the pp_rank. Returns the sum of the subtracted least
  // weights.
  Femtojoules SetWeights(std::size_t pp_rank, const Prices& prices);
  // Solves the program with its present weights.
  static SegmentProgram::Answer SolveWithWindows(RankProgram& own, int changes, std::int64_t& work);
  // Fills the change costs of the pp_rank. Returns their sum.
  Femtojoules ComputeChangeCosts(std::size_t pp_rank, const Prices& prices);
  bool IsUsable(const RankClocks& rank, std::size_t cell) const {
    return has_latency_ || rank.options[cell] != RankClocks::kUnmeasured;
  }

  const plan::Planner& planner_;
  const std::vector<RankClocks>& ranks_;
  Nanoseconds deadline_;
  Microwatts least_price_;
  std::vector<RankProgram> rank_programs_;
  bool has_latency_;
  bool on_all_cores_;
};

}  // namespace perseus::few_switches
