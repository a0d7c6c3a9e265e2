// The power of many pp_ranks over an iteration, and its peak: the highest mean over a window.
//
// The power is stored as its steps, summed by window, and only windows with a step are stored. So
// memory grows with the number of instructions, not with the length of the iteration (an iteration
// that waits an hour for its input has as many steps as any other).
//
// Windows are adjacent, from the begin of the iteration on. The end of the iteration may cut the
// last one short. So the peak is never below the mean of the whole iteration.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "perseus/base/units.h"

namespace perseus::emulator {

class PowerOverTime {
 public:
  // Requires window > 0.
  explicit PowerOverTime(Nanoseconds window) : window_(window) {}

  // Adds a consumer of `watts` from `start` until `end`.
  void Add(Nanoseconds start, Nanoseconds end, double watts);

  // The highest mean over a window of [0, until), with `base_w` added all the time.
  double Peak(Nanoseconds until, double base_w) const;

 private:
  struct Steps {
    double energy_j = 0;  // The energy that the steps add to this window.
    double step_w = 0;    // The power that they add to all later windows.
  };
  void Step(Nanoseconds time, double watts);

  Nanoseconds window_;
  std::unordered_map<std::int64_t, Steps> windows_;  // By number.
};

}  // namespace perseus::emulator
