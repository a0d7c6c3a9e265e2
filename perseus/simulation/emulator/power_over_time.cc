#include "perseus/simulation/emulator/power_over_time.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace perseus::emulator {

void PowerOverTime::Add(Nanoseconds start, Nanoseconds end, double watts) {
  Step(start, watts);
  Step(end, -watts);
}

void PowerOverTime::Step(Nanoseconds time, double watts) {
  const std::int64_t window = time / window_;
  Steps& steps = windows_[window];
  steps.energy_j += watts * ToSeconds((window + 1) * window_ - time);
  steps.step_w += watts;
}

double PowerOverTime::Peak(Nanoseconds until, double base_w) const {
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

}  // namespace perseus::emulator
