// From measured options to the convex time-energy curve that the planner bends.
//
// A rank that waits draws the blocking power P, so finishing an instruction later by dt saves P*dt
// of waiting. What an option costs is therefore its *effective energy* e - P*t (design: with S
// ranks and iteration time T, E = sum(e_i - P*t_i) + P*S*T). In the plane of (time, effective
// energy):
//   - an option is *dominated* if another is no slower and costs no more; it is dropped (noise);
//   - the rest is the Pareto front;
//   - the lower convex hull of that front is the curve: the cheapest mix of options for any time.
//
// The curve is a lower bound on every measured option, in exact integers: its slopes are whole
// microwatts rounded down, counted from the cheapest option, so that rounding only ever lowers the
// curve. Equal slopes are merged, so the curve is strictly convex; a slope below one microwatt is
// none, and the slower options behind it are no vertices. Rounding lowers the curve by less than
// 1 uW * (slowest - t) at time t: for a tenth of a second, a tenth of a microjoule.
#pragma once

#include <span>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/profile/profile.h"

namespace perseus::profile {

// Piecewise linear, strictly convex, strictly decreasing. Vertices from fast to slow:
//   times[0] < times[1] < ... < times[k]
//   slopes[j] > 0 is what each nanosecond saves between times[j] and times[j+1], in microwatts;
//   slopes[0] > slopes[1] > ... > slopes[k-1].
// Below times[0] nothing can run. Beyond times[k] nothing more is saved.
struct Curve {
  std::vector<Nanoseconds> times;
  std::vector<Microwatts> slopes;
  std::vector<int> options;             // At each vertex, the index of its option.
  double least_effective_energy_j = 0;  // Of all options: what the curve says at times[k].

  Nanoseconds fastest() const { return times.front(); }
  Nanoseconds slowest() const { return times.back(); }
  // Effective energy above the least one, for a duration of at least fastest(); 0 from slowest()
  // on.
  Femtojoules ExtraEnergyAt(Nanoseconds duration) const;
  // What the next nanosecond saves after a duration of at least fastest().
  Microwatts SlopeAfter(Nanoseconds duration) const;
};

inline double EffectiveEnergy(const Option& option, double blocking_power_w) {
  return option.energy_j - blocking_power_w * ToSeconds(option.time);
}

// The indices of the options that no other one dominates, fastest (and dearest) first. Of equal
// options the first stays.
std::vector<int> ParetoFront(std::span<const Option> options, double blocking_power_w);

// The lower hull of the Pareto front. Requires at least one option. A single option gives a curve
// of one vertex: a fixed instruction. Fails only if a slope exceeds ten gigawatts or an effective
// energy is not finite (a profile with units mixed up). O(n log n).
Result<Curve> LowerHull(std::span<const Option> options, double blocking_power_w);

// The published method's curve instead: effective energy fitted as a*exp(b*t) + c over the Pareto
// front by least squares (Perseus, SOSP '24, section 4.1). For comparison only: a fit is no bound.
struct ExponentialFit {
  double a = 0;  // J
  double b = 0;  // 1/s, negative
  double c = 0;  // J
  double root_mean_square_error_j = 0;
  double At(double seconds) const;
};
// Needs at least three options on the front.
Result<ExponentialFit> FitExponential(std::span<const Option> options, double blocking_power_w);

}  // namespace perseus::profile
