#include "perseus/planning/plan/power_shape.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "perseus/base/index.h"

namespace perseus::plan {

PowerShape::PowerShape(const Evaluation& evaluation, const ExecutionModel& model, int pp_ranks) {
  // What an instruction draws above the blocking power, from its start to its end.
  std::vector<std::pair<Nanoseconds, double>> changes = {{0, 0}, {evaluation.time, 0}};
  for (std::size_t i = 0; i < evaluation.starts.size(); ++i) {
    if (evaluation.durations[i] == 0) continue;
    const double above_w =
        evaluation.energies_j[i] / ToSeconds(evaluation.durations[i]) - model.blocking_power_w;
    changes.emplace_back(evaluation.starts[i], above_w);
    changes.emplace_back(evaluation.starts[i] + evaluation.durations[i], -above_w);
  }
  std::ranges::sort(changes);
  double power_w = model.blocking_power_w * pp_ranks;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const Nanoseconds time = changes[i].first;
    if (times_.empty()) {
      times_.push_back(time);
      energies_j_.push_back(0);
    } else if (time > times_.back()) {
      peak_w_ = std::max(peak_w_, power_w);
      energies_j_.push_back(energies_j_.back() + power_w * ToSeconds(time - times_.back()));
      times_.push_back(time);
    }
    power_w += changes[i].second;
  }
}

double PowerShape::EnergyUntil(Nanoseconds time) const {
  const Nanoseconds whole = time / times_.back();
  const Nanoseconds rest = time % times_.back();
  const auto after = std::ranges::upper_bound(times_, rest) - times_.begin();
  const std::size_t i = At(after) - 1;
  const double part =
      static_cast<double>(rest - times_[i]) / static_cast<double>(times_[i + 1] - times_[i]);
  return static_cast<double>(whole) * energies_j_.back() + energies_j_[i] +
         part * (energies_j_[i + 1] - energies_j_[i]);
}

double PowerShape::LargestStepW(Nanoseconds window) const {
  const Nanoseconds iteration = times_.back();
  if (iteration == 0) return 0;
  double largest_j = 0;
  for (const Nanoseconds corner : times_) {
    for (int windows = 0; windows < 3; ++windows) {
      // The start for which `corner` is the beginning, the middle or the end of both times.
      const Nanoseconds before = (windows * (window % iteration)) % iteration;
      const Nanoseconds start = (corner - before + iteration) % iteration;
      const double step_j =
          EnergyUntil(start + 2 * window) - 2 * EnergyUntil(start + window) + EnergyUntil(start);
      largest_j = std::max(largest_j, std::abs(step_j));
    }
  }
  return largest_j / ToSeconds(window);
}

}  // namespace perseus::plan
