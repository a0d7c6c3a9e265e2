// The least cost of a plan with few clock changes, if a second has a price at each instruction.
//
// This is the program of few_switches/switch_bound.h. Its prices are a flow there, whose value
// limits the iteration. Here they are the weights of paths under noise (noise_bound.h).
//
// Thread safety: one thread at a time.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/base/units.h"
#include "perseus/planning/few_switches/rank_clocks.h"
#include "perseus/planning/few_switches/switch_bound.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::noise {

class LimitedCost {
 public:
  // Of each pp_rank, in an iteration that repeats. Keeps a reference to the planner.
  LimitedCost(const plan::Planner& planner, int most_changes);

  // The least sum, over all instructions, of the effective energy and the price of the time, and of
  // what changes cost, in J. No plan has so few changes and costs less. Nothing if no plan has so
  // few. The prices are [instruction], in W: of its time, and of a stall before it.
  std::optional<double> Solve(std::span<const double> of_times_w,
                              std::span<const double> of_stalls_w);

  // Calls visit(instruction, seconds) for every instruction with a clock, with its time in the plan
  // that Solve found.
  template <typename Visit>
  void ForEachTime(const Visit& visit) const {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const few_switches::RankClocks& rank = ranks_[r];
      for (int p = 0; p < rank.positions(); ++p) {
        visit(rank.instructions[At(p)],
              ToSeconds(rank.times[rank.Cell(p, best_.clocks[r][At(p)])]));
      }
    }
  }
  // Of one call of Solve, about: positions * clocks * (changes + 2).
  double work() const;

 private:
  int most_changes_;
  std::vector<few_switches::RankClocks> ranks_;
  few_switches::SwitchBound bound_;
  few_switches::Prices prices_;
  few_switches::SwitchBound::Answer best_;
};

}  // namespace perseus::noise
