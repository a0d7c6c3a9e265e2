#include "perseus/runtime/profiler/comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "perseus/base/statistics.h"
#include "perseus/base/wording.h"

namespace perseus::profiler {
namespace {

// For at most this many pairs, the distribution is computed exactly. For more pairs, the normal
// distribution is as good: its error in the tail is below 1e-4.
constexpr int kMostExact = 200;

// The relative change, from the logarithm of a ratio.
double ToChange(double log_ratio) { return std::expm1(log_ratio); }

// Returns P(T <= t) for t = 0, 1, ... T is the sum of the positive numbers if each of 1..n has a
// random sign (+ or -, with probability 1/2 each).
std::vector<double> SignedRankDistribution(int n) {
  const int most = n * (n + 1) / 2;
  std::vector<double> probability(static_cast<std::size_t>(most) + 1, 0.0);
  probability[0] = 1;
  int reached = 0;
  for (int rank = 1; rank <= n; ++rank) {
    reached += rank;
    for (int sum = reached; sum >= 0; --sum) {
      const auto at = static_cast<std::size_t>(sum);
      const double with = sum >= rank ? probability[at - static_cast<std::size_t>(rank)] : 0;
      probability[at] = (probability[at] + with) / 2;
    }
  }
  for (std::size_t t = 1; t < probability.size(); ++t) probability[t] += probability[t - 1];
  return probability;
}

double NormalTail(double z) { return 0.5 * std::erfc(z / std::sqrt(2.0)); }

// The number of sorted averages that lie outside the interval at each end, and the level of the
// interval.
struct Cut {
  int outside = -1;  // -1: no interval has the level.
  double level = 0;
};
Cut CutFor(int n, double level) {
  const double tail = (1 - level) / 2;
  Cut cut;
  if (n <= kMostExact) {
    const std::vector<double> below = SignedRankDistribution(n);
    while (below[static_cast<std::size_t>(cut.outside + 1)] <= tail) {
      ++cut.outside;
      cut.level = 1 - 2 * below[static_cast<std::size_t>(cut.outside)];
    }
    return cut;
  }
  const double mean = n * (n + 1.0) / 4;
  const double deviation = std::sqrt(n * (n + 1.0) * (2.0 * n + 1) / 24);
  // The 0.5 is the continuity correction.
  auto below = [&](int t) { return NormalTail((mean - t - 0.5) / deviation); };
  int low = -1;
  int high = static_cast<int>(mean);
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (below(middle) <= tail ? low : high) = middle;
  }
  cut.outside = low;
  cut.level = 1 - 2 * below(low);
  return cut;
}

// Returns the z for which a standard normal variable is between -z and z with the probability
// `level`.
double NormalQuantile(double level) {
  double low = 0;
  double high = 10;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (1 - 2 * NormalTail(middle) < level ? low : high) = middle;
  }
  return low;
}

// The width of the interval, relative to the width of an interval of the mean, for normal noise:
// sqrt(pi / 3).
constexpr double kSignedRankWidth = 1.0233;
// Four of five results of a normal variable are below its mean plus this many deviations.
constexpr double kFourOfFive = 0.8416;
constexpr double kLeastSpread = 1e-4;

// Returns the number of pairs with which an interval around the same estimate is so narrow that it
// does not reach `limit`.
double PairsUntil(double estimate, double limit, const SignedRankInterval& center) {
  const double distance = std::abs(estimate - limit);
  if (distance <= 0) return INFINITY;
  const double ratio = ExpectedHalfWidth(center.usual_deviation, 1, center.level) / distance;
  return ratio * ratio;
}

int PairsNeeded(const Comparison& comparison, const SignedRankInterval& time,
                const SignedRankInterval& energy, const ComparisonOptions& options) {
  double needed = -1;
  if (comparison.saves == Verdict::kCannotTell) {
    needed = PairsUntil(comparison.saving.estimate, 0, energy);
  }
  if (comparison.slows == Verdict::kCannotTell) {
    // The smaller number counts, because each of the two limits can decide.
    const double slowdown = comparison.slowdown.estimate;
    needed = std::max(needed, std::min(PairsUntil(slowdown, 0, time),
                                       PairsUntil(slowdown, options.slowdown_tolerance, time)));
  }
  if (needed < 0) return 0;
  // The answer is at least one pair more than this run has.
  return static_cast<int>(
      std::min<double>(kMostPairs, std::max(std::ceil(needed), comparison.pairs + 1.0)));
}

void AddOutliers(std::span<const double> differences, const SignedRankInterval& center,
                 Comparison::Outlier::Quantity quantity,
                 std::vector<Comparison::Outlier>& outliers) {
  for (std::size_t pair = 0; pair < differences.size(); ++pair) {
    const double spreads = std::abs(differences[pair] - center.median) / center.spread;
    if (spreads <= SignedRankInterval::kNamed) continue;
    outliers.push_back(
        {pair, quantity, ToChange(differences[pair] - center.interval.estimate), spreads});
  }
}

std::string Range(const Interval& interval, double level) {
  return fmt::format("{} to {} at {:.1f} % confidence", FormatPercent(interval.lower),
                     FormatPercent(interval.upper), 100 * level);
}

}  // namespace

int LeastPairs(double level) {
  int n = 1;
  while (CutFor(n, level).outside < 0) ++n;
  return n;
}

SignedRankInterval EstimateCenter(std::span<const double> differences, double level) {
  const auto n = static_cast<int>(differences.size());
  const Cut cut = CutFor(n, level);
  SignedRankInterval center;
  center.level = cut.level;
  center.median = Median({differences.begin(), differences.end()});
  center.spread =
      std::max(kLeastSpread, kDeviationsOfMad * MedianDeviation(differences, center.median));
  const double most = SignedRankInterval::kLimit * center.spread;
  std::vector<double> limited;
  std::vector<double> usual;
  for (const double d : differences) {
    limited.push_back(std::clamp(d, center.median - most, center.median + most));
    if (limited.back() == d) usual.push_back(d);
  }
  center.usual_deviation = std::max(kLeastSpread, StandardDeviation(usual));
  std::vector<double> averages;
  averages.reserve(limited.size() * (limited.size() + 1) / 2);
  for (std::size_t i = 0; i < limited.size(); ++i) {
    for (std::size_t j = i; j < limited.size(); ++j) {
      averages.push_back((limited[i] + limited[j]) / 2);
    }
  }
  std::sort(averages.begin(), averages.end());
  const auto outside = static_cast<std::size_t>(std::max(cut.outside, 0));
  center.interval = {Median(averages), averages[outside], averages[averages.size() - 1 - outside]};
  return center;
}

double ExpectedHalfWidth(double deviation, double pairs, double level) {
  return NormalQuantile(level) * kSignedRankWidth * deviation / std::sqrt(pairs);
}

int PairsToResolve(double deviation, double limit, double level) {
  const double errors = (NormalQuantile(level) + kFourOfFive) * kSignedRankWidth * deviation;
  const double pairs = std::ceil((errors / limit) * (errors / limit));
  return static_cast<int>(std::clamp<double>(pairs, LeastPairs(level), kMostPairs));
}

Result<Comparison> Compare(std::span<const BlockPair> pairs, const ComparisonOptions& options) {
  const int least = LeastPairs(options.level);
  if (pairs.size() < static_cast<std::size_t>(least)) {
    return Fail(
        "{} pairs of blocks are too few for a comparison at {:g} % confidence (it needs at least "
        "{}: run more steps)",
        pairs.size(), 100 * options.level, least);
  }
  std::vector<double> times;
  std::vector<double> energies;
  for (const BlockPair& pair : pairs) {
    if (!(pair.baseline_time_s > 0 && pair.planned_time_s > 0 && pair.baseline_energy_j > 0 &&
          pair.planned_energy_j > 0)) {
      return Fail(
          "pair {} has a time or an energy that is not above 0 (does the GPU have an energy "
          "counter? If so, make blocks longer than its period)",
          times.size());
    }
    times.push_back(std::log(pair.planned_time_s / pair.baseline_time_s));
    energies.push_back(std::log(pair.planned_energy_j / pair.baseline_energy_j));
  }

  Comparison comparison;
  comparison.pairs = static_cast<int>(pairs.size());
  const SignedRankInterval time = EstimateCenter(times, options.level);
  const SignedRankInterval energy = EstimateCenter(energies, options.level);
  comparison.level = time.level;
  comparison.slowdown = {ToChange(time.interval.estimate), ToChange(time.interval.lower),
                         ToChange(time.interval.upper)};
  comparison.saving = {-ToChange(energy.interval.estimate), -ToChange(energy.interval.upper),
                       -ToChange(energy.interval.lower)};
  if (comparison.saving.lower > 0) comparison.saves = Verdict::kGreater;
  if (comparison.saving.upper < 0) comparison.saves = Verdict::kLess;
  if (comparison.slowdown.upper <= options.slowdown_tolerance) {
    comparison.slows = comparison.slowdown.upper < 0 ? Verdict::kLess : Verdict::kSame;
  } else if (comparison.slowdown.lower > 0) {
    comparison.slows = Verdict::kGreater;
  }
  comparison.pairs_needed = PairsNeeded(comparison, time, energy, options);
  AddOutliers(times, time, Comparison::Outlier::Quantity::kTime, comparison.outliers);
  AddOutliers(energies, energy, Comparison::Outlier::Quantity::kEnergy, comparison.outliers);
  std::ranges::stable_sort(comparison.outliers, {}, &Comparison::Outlier::pair);
  return comparison;
}

std::string Describe(const Comparison& comparison, const ComparisonOptions& options) {
  const std::string saving = Range(comparison.saving, comparison.level);
  std::string text;
  switch (comparison.saves) {
    case Verdict::kGreater:
      text = fmt::format("saves {} of the energy ({})", FormatPercent(comparison.saving.estimate),
                         saving);
      break;
    case Verdict::kLess:
      text = fmt::format("costs {} more energy (saving {})",
                         FormatPercent(-comparison.saving.estimate), saving);
      break;
    default:
      text = fmt::format("cannot tell whether it saves energy ({})", saving);
  }
  const std::string slowdown = Range(comparison.slowdown, comparison.level);
  switch (comparison.slows) {
    case Verdict::kLess:
      text += fmt::format("\nis faster by {} (slowdown {})",
                          FormatPercent(-comparison.slowdown.estimate), slowdown);
      break;
    case Verdict::kSame:
      text += fmt::format("\nis no slower, to within {:g} % (slowdown {})",
                          100 * options.slowdown_tolerance, slowdown);
      break;
    case Verdict::kGreater:
      text += fmt::format("\nis slower by {} ({})", FormatPercent(comparison.slowdown.estimate),
                          slowdown);
      break;
    default:
      text += fmt::format("\ncannot tell whether it is slower by more than {:g} % ({})",
                          100 * options.slowdown_tolerance, slowdown);
  }
  if (comparison.pairs_needed >= kMostPairs) {
    text += "\nthe difference, if there is one, is too small to measure in a run of any length";
  } else if (comparison.pairs_needed > 0) {
    text += fmt::format("\nabout {} pairs of blocks would decide it (this run has {})",
                        comparison.pairs_needed, comparison.pairs);
  }
  return text;
}

}  // namespace perseus::profiler
