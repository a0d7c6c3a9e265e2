#include "perseus/runtime/profiler/energy_curve.h"

#include <algorithm>

namespace perseus::profiler {

void EnergyCurve::Add(Nanoseconds after, Nanoseconds until, double energy_j) {
  const Nanoseconds at = after + (until - after) / 2;
  if (!points_.empty()) {
    if (energy_j < points_.back().energy_j)
      points_.clear();
    else if (at <= points_.back().at)
      return;
  }
  points_.push_back({at, energy_j});
}

std::optional<double> EnergyCurve::At(Nanoseconds time) const {
  const auto next =
      std::lower_bound(points_.begin(), points_.end(), time,
                       [](const Point& point, Nanoseconds t) { return point.at < t; });
  if (next == points_.end()) return std::nullopt;
  if (next->at == time) return next->energy_j;
  if (next == points_.begin()) return std::nullopt;
  const Point& before = *(next - 1);
  const double part =
      static_cast<double>(time - before.at) / static_cast<double>(next->at - before.at);
  return before.energy_j + part * (next->energy_j - before.energy_j);
}

std::optional<double> EnergyCurve::Between(Nanoseconds begin, Nanoseconds end) const {
  const std::optional<double> from = At(begin);
  const std::optional<double> to = At(end);
  if (!from || !to) return std::nullopt;
  return *to - *from;
}

void EnergyCurve::ForgetBefore(Nanoseconds time) {
  const auto next =
      std::lower_bound(points_.begin(), points_.end(), time,
                       [](const Point& point, Nanoseconds t) { return point.at < t; });
  // Interpolation still needs the point before `next`.
  if (next - points_.begin() > 1) points_.erase(points_.begin(), next - 1);
}

}  // namespace perseus::profiler
