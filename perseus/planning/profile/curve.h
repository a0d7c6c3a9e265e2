// Turns measured options into the convex time-energy curve that the solvers use.
//
// A pp_rank that waits draws the blocking power P. An instruction that ends dt later saves the
// energy P*dt of waiting. So the cost of an option with energy e and time t is its *effective
// energy* e - P*t. With S pp_ranks and iteration time T, the energy of an iteration is
//
//     E = sum(e_i) + P*(S*T - sum(t_i)) = sum(e_i - P*t_i) + P*S*T.
//
// In the plane of time and effective energy:
//   - an option is *dominated* if another option is at least as fast and costs no more. A dominated
//     option is noise or useless, so it is dropped;
//   - the remaining options are the Pareto front;
//   - the lower convex hull of the front is the curve: the least cost of any mix of options.
//
// Invariants, in exact integers:
// 1. The curve is never above a measured option. Its slopes are whole microwatts, rounded down, and
//    its energies are computed from the cheapest option. So rounding only lowers the curve: at time
//    t, by less than 1 uW * (slowest - t). For a tenth of a second, this is a tenth of a
//    microjoule.
// 2. The curve is strictly convex. Equal slopes are merged. A slope below one microwatt counts as
//    0: the curve ends there, and slower options are not vertices.
#pragma once

#include <span>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/profile/profile.h"

namespace perseus::profile {

// Piecewise linear, strictly convex, strictly decreasing. Vertices are in order from fast to slow:
//   times[0] < times[1] < ... < times[k]
//   slopes[0] > slopes[1] > ... > slopes[k-1] > 0
// slopes[j] is the energy that each additional second saves between times[j] and times[j+1], in
// microwatts. A duration below times[0] is impossible. A duration above times[k] saves nothing
// more.
struct Curve {
  std::vector<Nanoseconds> times;
  std::vector<Microwatts> slopes;
  std::vector<int> options;             // [vertex] the index of its option.
  double least_effective_energy_j = 0;  // The least of all options: the curve at times[k].

  Nanoseconds fastest() const { return times.front(); }
  Nanoseconds slowest() const { return times.back(); }
  // The effective energy above the least effective energy. 0 from slowest() on. Requires a duration
  // of at least fastest().
  Femtojoules ExtraEnergyAt(Nanoseconds duration) const;
  // The slope just after `duration`. 0 from slowest() on. Requires a duration of at least
  // fastest().
  Microwatts SlopeAfter(Nanoseconds duration) const;
};

inline double EffectiveEnergy(const Option& option, double blocking_power_w) {
  return option.energy_j - blocking_power_w * ToSeconds(option.time);
}
// The same, rounded down to whole femtojoules.
Femtojoules FlooredEffectiveEnergy(const Option& option, double blocking_power_w);

// The indices of the options that no other option dominates, fastest (and most expensive) first. Of
// options with the same time and energy, only the one with the lowest clock remains: at its power
// limit, a GPU reaches none of the higher ones. O(n log n).
std::vector<int> ParetoFront(std::span<const Option> options, double blocking_power_w);

// The lower hull of the Pareto front. A single option gives a curve of one vertex: a fixed
// instruction. Fails (kInput) if `options` is empty, if a slope is above ten gigawatts, or if an
// effective energy is not a finite number below 1e18 J. The usual cause is a profile with mixed
// units. O(n log n).
Result<Curve> LowerHull(std::span<const Option> options, double blocking_power_w);

// The curve of the published method (Perseus, SOSP '24, section 4.1): a least-squares fit of
// a*exp(b*t) + c to the effective energies of the Pareto front. It is only used for comparisons,
// because a fit is not a bound.
struct ExponentialFit {
  double a = 0;  // J
  double b = 0;  // 1/s, negative
  double c = 0;  // J
  double root_mean_square_error_j = 0;
  double At(double seconds) const;
};
// Fails (kInput) if the front has fewer than three options, or if their times are too close
// together.
Result<ExponentialFit> FitExponential(std::span<const Option> options, double blocking_power_w);

}  // namespace perseus::profile
