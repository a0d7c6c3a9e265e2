// The power of many pp_ranks over an iteration, and its peak: the highest mean over a window.
//
// The power is stored as its steps, summed for each window, and only windows with a step are
// stored. So memory grows with the number of instructions, not with the length of the iteration.
// (An iteration that waits an hour for its input has as many steps as any other.)
//
// Windows are adjacent, beginning at the start of the iteration. The last window may be shorter,
// because it ends with the iteration. So the peak is never below the mean of the whole iteration.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "perseus/base/units.h"

namespace perseus::emulator {

class PowerOverTime {
 public:
  // Requires window > 0.
  explicit PowerOverTime(Nanoseconds window) : window_(window) {}

  // Adds a consumer that draws `watts` from `start` until `end`.
  void Add(Nanoseconds start, Nanoseconds end, double watts) {
    Step(start, watts);
    Step(end, -watts);
  }

  // Returns the highest mean over a window of [0, until). The constant power `base_w` is added.
  double Peak(Nanoseconds until, double base_w) const {
    std::vector<std::pair<std::int64_t, Steps>> windows(windows_.begin(), windows_.end());
    std::sort(windows.begin(), windows.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    double peak_w = 0;
    double power_w = base_w;  // At the beginning of window `next`.
    std::int64_t next = 0;
    for (const auto& [window, steps] : windows) {
      const Nanoseconds start = window * window_;
      if (start >= until) break;
      if (window > next) peak_w = std::max(peak_w, power_w);
      const Nanoseconds length = std::min(window_, until - start);
      const double energy_j = steps.energy_j - steps.step_w * ToSeconds(window_ - length);
      peak_w = std::max(peak_w, power_w + energy_j / ToSeconds(length));
      power_w += steps.step_w;
      next = window + 1;
    }
    if (next * window_ < until) peak_w = std::max(peak_w, power_w);
    return peak_w;
  }

 private:
  struct Steps {
    double energy_j = 0;  // The energy that the steps add to this window.
    double step_w = 0;    // The power that they add to all later windows.
  };
  void Step(Nanoseconds time, double watts) {
    const std::int64_t window = time / window_;
    Steps& steps = windows_[window];
    steps.energy_j += watts * ToSeconds((window + 1) * window_ - time);
    steps.step_w += watts;
  }

  Nanoseconds window_;
  std::unordered_map<std::int64_t, Steps> windows_;  // By number.
};

}  // namespace perseus::emulator
