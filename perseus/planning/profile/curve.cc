#include "perseus/planning/profile/curve.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

namespace perseus::profile {
namespace {

// The steepest slope of a curve: ten gigawatts, or 10 J per nanosecond. No device draws that power.
// A cut through a graph adds slopes, and the sum of about 900 such slopes fits 64 bits.
constexpr Microwatts kSteepestSlope(10'000'000'000'000'000);

// No measurement gives a larger effective energy. In femtojoules, this fits 128 bits.
constexpr double kMostEffectiveJoules = 1e18;

struct Point {
  Nanoseconds time = 0;
  Femtojoules cost = 0;
  int option = 0;
};

// The exact slope between two points: (whole + remainder / duration) microwatts, where 0 <=
// remainder < duration. (A cross product of the differences would not fit 128 bits.)
struct ExactSlope {
  Femtojoules whole = 0;
  Femtojoules remainder = 0;
  Nanoseconds duration = 1;
};

// Returns the slope between two points. Requires that `slow` is slower and does not cost more.
ExactSlope SlopeBetween(const Point& fast, const Point& slow) {
  const Nanoseconds duration = slow.time - fast.time;
  const Femtojoules saved = fast.cost - slow.cost;
  return {saved / duration, saved % duration, duration};
}

bool IsSteeper(const ExactSlope& a, const ExactSlope& b) {
  if (a.whole != b.whole) return a.whole > b.whole;
  return a.remainder * b.duration > b.remainder * a.duration;
}

// Andrew's monotone chain, over points from fast to slow: the vertices of the strict lower hull.
std::vector<Point> HullOf(const std::vector<Point>& front) {
  std::vector<Point> hull;
  for (const Point& next : front) {
    while (hull.size() >= 2 && !IsSteeper(SlopeBetween(hull[hull.size() - 2], hull.back()),
                                          SlopeBetween(hull.back(), next))) {
      hull.pop_back();
    }
    hull.push_back(next);
  }
  return hull;
}

}  // namespace

Femtojoules FlooredEffectiveEnergy(const Option& option, double blocking_power_w) {
  return static_cast<Femtojoules>(
      std::floor(EffectiveEnergy(option, blocking_power_w) * kFemtojoulesPerJoule));
}

Femtojoules Curve::ExtraEnergyAt(Nanoseconds duration) const {
  duration = std::max(duration, fastest());
  Femtojoules extra = 0;
  for (std::size_t j = 0; j < slopes.size(); ++j) {
    const Nanoseconds from = std::max(duration, times[j]);
    if (from < times[j + 1]) extra += slopes[j] * (times[j + 1] - from);
  }
  return extra;
}

Microwatts Curve::SlopeAfter(Nanoseconds duration) const {
  const auto passed = std::upper_bound(times.begin() + 1, times.end(), duration) - times.begin();
  return passed > static_cast<std::ptrdiff_t>(slopes.size())
             ? 0
             : slopes[static_cast<std::size_t>(passed - 1)];
}

std::vector<int> ParetoFront(std::span<const Option> options, double blocking_power_w) {
  std::vector<double> cost;
  cost.reserve(options.size());
  for (const Option& option : options) cost.push_back(EffectiveEnergy(option, blocking_power_w));

  std::vector<int> order(options.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const auto i = static_cast<std::size_t>(a);
    const auto j = static_cast<std::size_t>(b);
    if (options[i].time != options[j].time) return options[i].time < options[j].time;
    if (cost[i] != cost[j]) return cost[i] < cost[j];
    return options[i].frequency_mhz < options[j].frequency_mhz;
  });

  std::vector<int> front;
  double least = std::numeric_limits<double>::infinity();
  for (const int index : order) {
    const double here = cost[static_cast<std::size_t>(index)];
    if (here < least) {
      front.push_back(index);
      least = here;
    }
  }
  return front;
}

Result<Curve> LowerHull(std::span<const Option> options, double blocking_power_w) {
  std::vector<Point> front;
  double least = 0;
  for (const int index : ParetoFront(options, blocking_power_w)) {
    const Option& option = options[static_cast<std::size_t>(index)];
    least = EffectiveEnergy(option, blocking_power_w);  // The last option is the cheapest.
    if (!(std::abs(least) <= kMostEffectiveJoules)) break;
    front.push_back(
        {option.time, static_cast<Femtojoules>(std::floor(least * kFemtojoulesPerJoule)), index});
  }
  if (front.empty() || !(std::abs(least) <= kMostEffectiveJoules)) {
    return Fail(
        "the effective energies of {} options with a blocking power of {} W are not finite numbers "
        "below {} J (give each instruction an option, energies in joules, and power in watts)",
        options.size(), blocking_power_w, kMostEffectiveJoules);
  }

  // The loop goes from slow to fast. If a slope rounds to the slope of its slower neighbor (or to
  // 0), the vertex between them is dropped, and the rest of the curve does not change. If the
  // slowest vertex is dropped, the curve is still relative to the least energy of all options.
  const std::vector<Point> hull = HullOf(front);
  Curve curve;
  curve.least_effective_energy_j = least;
  curve.times.push_back(hull.back().time);
  curve.options.push_back(hull.back().option);
  Microwatts slower = 0;
  for (std::size_t j = hull.size() - 1; j-- > 0;) {
    const Femtojoules slope = SlopeBetween(hull[j], hull[j + 1]).whole;
    if (slope > kSteepestSlope.count()) {
      return Fail(
          "the options of {} ns and {} ns differ by {:.3g} J, which is more than ten gigawatts "
          "(are the units mixed up? expected seconds, joules and watts)",
          hull[j].time, hull[j + 1].time, ToJoules(hull[j].cost - hull[j + 1].cost));
    }
    if (slope == slower.count()) {
      curve.times.back() = hull[j].time;
      curve.options.back() = hull[j].option;
      continue;
    }
    slower = Microwatts(static_cast<std::int64_t>(slope));
    curve.slopes.push_back(slower);
    curve.times.push_back(hull[j].time);
    curve.options.push_back(hull[j].option);
  }
  std::reverse(curve.times.begin(), curve.times.end());
  std::reverse(curve.slopes.begin(), curve.slopes.end());
  std::reverse(curve.options.begin(), curve.options.end());
  return curve;
}

}  // namespace perseus::profile
