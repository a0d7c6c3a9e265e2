// For a given b, linear regression on u = exp(b * (t - fastest)) gives the best a and c. So the
// search has only one parameter, b, on a log scale. It starts with a grid, because the sum of
// squares may have several minima. Then a golden-section search around the best grid point follows.
// This method cannot diverge.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "perseus/planning/profile/curve.h"

namespace perseus::profile {
namespace {

constexpr int kGridPoints = 96;
// After these steps, the bracket is shorter than the square root of the precision of a double. Near
// its minimum, a sum of squares is flat in doubles, so more steps do not help.
constexpr int kGoldenSectionSteps = 40;

struct Samples {
  std::vector<double> times_s;  // Increasing.
  std::vector<double> costs_j;
};

ExponentialFit FitWithRate(const Samples& samples, double b) {
  const double fastest = samples.times_s.front();
  const double count = static_cast<double>(samples.times_s.size());
  std::vector<double> u;
  for (const double t : samples.times_s) u.push_back(std::exp(b * (t - fastest)));
  const double mean_u = std::accumulate(u.begin(), u.end(), 0.0) / count;
  const double mean_cost =
      std::accumulate(samples.costs_j.begin(), samples.costs_j.end(), 0.0) / count;

  double covariance = 0;
  double variance = 0;
  for (std::size_t i = 0; i < u.size(); ++i) {
    covariance += (u[i] - mean_u) * (samples.costs_j[i] - mean_cost);
    variance += (u[i] - mean_u) * (u[i] - mean_u);
  }
  const double scale = covariance / variance;
  double squares = 0;
  for (std::size_t i = 0; i < u.size(); ++i) {
    const double error = mean_cost + scale * (u[i] - mean_u) - samples.costs_j[i];
    squares += error * error;
  }
  return {.a = scale * std::exp(-b * fastest),
          .b = b,
          .c = mean_cost - scale * mean_u,
          .root_mean_square_error_j = std::sqrt(squares / count)};
}

}  // namespace

double ExponentialFit::At(double seconds) const { return a * std::exp(b * seconds) + c; }

Result<ExponentialFit> FitExponential(std::span<const Option> options, double blocking_power_w) {
  Samples samples;
  for (const int index : ParetoFront(options, blocking_power_w)) {
    const Option& option = options[static_cast<std::size_t>(index)];
    samples.times_s.push_back(ToSeconds(option.time));
    samples.costs_j.push_back(EffectiveEnergy(option, blocking_power_w));
  }
  if (samples.times_s.size() < 3) {
    return Fail(
        "an exponential fit needs three options that no other option dominates, and only {} of {} "
        "are such options (measure more frequencies)",
        samples.times_s.size(), options.size());
  }

  // The range of b goes from almost a straight line to a drop right after the first point. The
  // value exp(-b * fastest) must fit a double.
  const double slowest = samples.times_s.back();
  const double range = slowest - samples.times_s.front();
  const double lowest = std::log(1e-3 / range);
  const double highest = std::log(std::min(1e2 / range, 600 / slowest));
  if (!(lowest < highest)) {
    return Fail(
        "the times of the options, {} s to {} s, are too close together for an exponential "
        "(measure a wider range of frequencies)",
        samples.times_s.front(), slowest);
  }
  const auto error_at = [&](double log_rate) {
    return FitWithRate(samples, -std::exp(log_rate)).root_mean_square_error_j;
  };

  const double step = (highest - lowest) / (kGridPoints - 1);
  double best = lowest;
  double least_error = error_at(best);
  for (int i = 1; i < kGridPoints; ++i) {
    const double candidate = lowest + step * i;
    if (const double error = error_at(candidate); error < least_error) {
      best = candidate;
      least_error = error;
    }
  }
  double low = std::max(lowest, best - step);
  double high = std::min(highest, best + step);
  const double golden = (std::sqrt(5.0) - 1) / 2;
  for (int i = 0; i < kGoldenSectionSteps; ++i) {
    const double left = high - golden * (high - low);
    const double right = low + golden * (high - low);
    if (error_at(left) <= error_at(right)) {
      high = right;
    } else {
      low = left;
    }
  }
  return FitWithRate(samples, -std::exp((low + high) / 2));
}

}  // namespace perseus::profile
