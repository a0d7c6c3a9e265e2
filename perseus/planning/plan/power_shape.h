// The power of an iteration over time: how high it rises, and how much it changes.
//
// A pp_rank draws the mean power of the instruction that it runs, and the blocking power while it
// waits. So the power of a pipeline is a step function, and the iteration repeats it. Within an
// instruction, the power of a real GPU varies from kernel to kernel: real peaks are higher.
//
// A step is the change between the mean power of two neighboring times of equal length, such as
// 0.1 s. Meters, feeds and generators see means of this kind. Let F(t) be the energy until t. Then
//
//     step(t) = (F(t + 2w) - 2 F(t + w) + F(t)) / w
//
// is linear between the times at which t, t + w or t + 2w is a corner of F. So the largest step is
// found exactly, in O(n log n) for n instructions.
#pragma once

#include <vector>

#include "perseus/planning/plan/evaluation.h"

namespace perseus::plan {

class PowerShape {
 public:
  PowerShape(const Evaluation& evaluation, const ExecutionModel& model, int pp_ranks);

  double peak_w() const { return peak_w_; }
  // The largest step up or down, for times of length `window` > 0.
  double LargestStepW(Nanoseconds window) const;

 private:
  double EnergyUntil(Nanoseconds time) const;

  // The corners of F in rising order, from 0 to the end of the iteration.
  std::vector<Nanoseconds> times_;
  std::vector<double> energies_j_;  // F at each corner.
  double peak_w_ = 0;
};

}  // namespace perseus::plan
