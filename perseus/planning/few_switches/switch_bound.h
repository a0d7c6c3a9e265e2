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
// WINDOWS
//   If all other instructions run at their fastest times, an instruction has a window of time, and
//   every plan within T0 keeps it. So the least value may be taken over only those sequences that
//   keep the windows (window_program.h). A mixture of all sequences may be below this value,
//   because it may have a sequence that is too slow for its windows. Both bounds hold at any
//   prices. At the best prices without windows, the windows gain next to nothing: at these prices,
//   a sequence in time costs as little as one that is too slow. The gain comes from the steps of
//   the ascent that keep the windows.
//
//   With a switch latency there are no windows: the sequence that weighs no more than a mix of two
//   clocks may take longer than the mix (below).
//
// COSTS
//   A switch cost of a stall s and an energy J makes a change at instruction i cost x_i*s + J: the
//   stall is duration of i, and it draws the blocking power, which effective energy leaves out.
//
//   With a switch latency, some instructions after a change run at the clock before, wholly or
//   partly. The weight of a mix of two clocks is at least the smaller of their weights. So a plan
//   with pure clocks and no more changes, in which each change may come later, weighs no more. The
//   program is free to choose that plan. If its later change costs more than the change of the real
//   plan, the bound would be wrong. So a change costs the least of its own cost and the costs at
//   the positions before it, as far back as a latency reaches. A clock that was not measured for an
//   instruction then means the nearest one, as in plan/evaluation.h.
//
// EXACTNESS
//   Weights are whole femtojoules (energies are rounded down). A program counts in units of 2^k fJ,
//   with the least k for which its sums are exact, and each weight is rounded down to a unit after
//   the least weight of its position was subtracted. So the result is never above the exact one.
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
  Microwatts price = 0;          // Its value, lambda.
  // [instruction] The price of a stall before it. Empty: as `flow`.
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
    bool exists = false;  // Whether a plan with at most these changes exists, at any deadline.
    Femtojoules bound = 0;
    // [pp_rank][position] The choice that attains the bound at these prices.
    std::vector<std::vector<int>> clocks;
    std::int64_t work = 0;  // Labels of the windows.
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
    // How far the result of the latest search is above the cost without windows.
    Femtojoules excess = 0;
    int lateness = 0;  // How many positions later a change may take effect.
    std::vector<Femtojoules> weights = {};
    std::vector<Femtojoules> change_costs = {};  // [position]
    int unit_shift = 0;                          // A unit is 2^unit_shift fJ.
  };
  // The part of an answer that a pp_rank adds.
  struct Part {
    bool exists = true;
    Femtojoules bound = 0;
    std::vector<int> clocks = {};
    std::int64_t work = 0;
  };

  // Whether a pass over all programs takes much longer than the start of a thread.
  bool IsLong(int changes, Windows windows) const;
  Part SolveRank(std::size_t pp_rank, const Prices& prices, int changes, Windows windows);
  // Fills the weights of the program of the pp_rank. Returns the sum of what was subtracted.
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
