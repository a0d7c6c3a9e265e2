// The descent of noise_margin.h: from a plan to one that is short enough on average, and cheap.
//
// Thread safety: one thread at a time.
#pragma once

#include <span>
#include <stop_token>
#include <vector>

#include "perseus/planning/noise/margin_moves.h"
#include "perseus/planning/noise/noisy_execution.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::noise {

class MarginDescent {
 public:
  struct Limits {
    int samples = 0;
    int runs = 0;                 // Of the samples. A repair may make some more.
    std::stop_token stop = {};    // Nothing is repaired any more.
    std::stop_token finish = {};  // Nothing is polished any more.
  };
  // Starts from `options`. Keeps references to the planner and `moves`.
  MarginDescent(const plan::Planner& planner, const Noise& noise, const Limits& limits,
                const MarginMoves& moves, std::span<const int> options);

  const NoisyMean& mean() const { return mean_; }  // Of options().
  const std::vector<int>& options() const { return options_; }
  int runs() const { return limits_.runs - runs_left_; }
  double MeanTimeOf(std::span<const int> options) { return execution_.Run(options).time_s; }

  // Returns false if it finds no options that take at most `target_s`.
  bool Repair(double target_s) { return RepairFrom(execution_, options_, mean_, target_s); }

  // The same for the time without noise. Usually, it is short enough already.
  bool RepairWithoutNoise(double target_s);

  // Saves energy within `target_s`, until further steps would gain nothing.
  void Polish(double target_s);

 private:
  NoisyMean Run(const NoisyExecution& execution, std::span<const int> options);
  // Makes what gains most slower, for so much mean time, and then repairs. Whether this saves
  // energy. If not, nothing changes.
  bool ImproveWithin(double budget_s, double target_s);
  // Makes what is cheapest faster until the mean time is short enough.
  bool RepairFrom(const NoisyExecution& execution, std::vector<int>& options, NoisyMean& mean,
                  double target_s);

  const MarginMoves& moves_;
  Limits limits_;
  NoisyExecution execution_;
  NoisyExecution quiet_;
  int runs_left_;
  std::vector<int> options_;
  NoisyMean mean_;
};

}  // namespace perseus::noise
