#include "perseus/runtime/profiler/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace perseus::profiler {
namespace {

// For at most this many pairs, the distribution is computed exactly. Above, the normal distribution
// is as good: its error in the tail is below 1e-4.
constexpr int kMostExact = 200;

// More pairs would take years of training.
constexpr int kTooManyPairs = 1'000'000;

// The relative change, from the logarithm of a ratio.
double ToChange(double log_ratio) { return std::expm1(log_ratio); }

// P(T <= t) for t = 0, 1, ... T is the sum of the positive numbers if each of 1..n has a random
// sign (+ or -, with probability 1/2 each).
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

// How many of the sorted averages lie outside of the interval at each end, and the interval's
// level.
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
  // The 0.5 is the correction for continuity.
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

double MedianOfSorted(const std::vector<double>& sorted) {
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

// By which factor the number of pairs has to grow until `interval` does not reach `limit`.
double Growth(const Interval& interval, double limit) {
  const double distance = std::abs(interval.estimate - limit);
  const double half = (interval.upper - interval.lower) / 2;
  if (distance <= 0) return INFINITY;
  return std::max(1.0, (half / distance) * (half / distance));
}

int PairsNeeded(const Comparison& comparison, const ComparisonOptions& options) {
  double growth = 0;
  if (comparison.saves == Verdict::kCannotTell) growth = Growth(comparison.saving, 0);
  if (comparison.slows == Verdict::kCannotTell) {
    // Either limit decides.
    growth = std::max(growth, std::min(Growth(comparison.slowdown, 0),
                                       Growth(comparison.slowdown, options.slowdown_tolerance)));
  }
  if (growth == 0) return 0;
  // One more, so that the result is larger than the number of pairs so far.
  return static_cast<int>(
      std::min<double>(kTooManyPairs, std::ceil(growth * comparison.pairs) + 1));
}

std::string Percent(double fraction) { return fmt::format("{:.2f}", 100 * fraction); }

std::string Range(const Interval& interval, double level) {
  return fmt::format("{} to {} % at {:.1f} % confidence", Percent(interval.lower),
                     Percent(interval.upper), 100 * level);
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
  std::vector<double> averages;
  averages.reserve(differences.size() * (differences.size() + 1) / 2);
  for (std::size_t i = 0; i < differences.size(); ++i) {
    for (std::size_t j = i; j < differences.size(); ++j) {
      averages.push_back((differences[i] + differences[j]) / 2);
    }
  }
  std::sort(averages.begin(), averages.end());
  const auto outside = static_cast<std::size_t>(std::max(cut.outside, 0));
  return {{MedianOfSorted(averages), averages[outside], averages[averages.size() - 1 - outside]},
          cut.level};
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
  comparison.pairs_needed = PairsNeeded(comparison, options);
  return comparison;
}

std::string Describe(const Comparison& comparison, const ComparisonOptions& options) {
  const std::string saving = Range(comparison.saving, comparison.level);
  std::string text;
  switch (comparison.saves) {
    case Verdict::kGreater:
      text =
          fmt::format("saves {} % of the energy ({})", Percent(comparison.saving.estimate), saving);
      break;
    case Verdict::kLess:
      text = fmt::format("costs {} % more energy (saving {})", Percent(-comparison.saving.estimate),
                         saving);
      break;
    default:
      text = fmt::format("cannot tell whether it saves energy ({})", saving);
  }
  const std::string slowdown = Range(comparison.slowdown, comparison.level);
  switch (comparison.slows) {
    case Verdict::kLess:
      text += fmt::format("\nis faster by {} % (slowdown {})",
                          Percent(-comparison.slowdown.estimate), slowdown);
      break;
    case Verdict::kSame:
      text += fmt::format("\nis no slower, to within {:g} % (slowdown {})",
                          100 * options.slowdown_tolerance, slowdown);
      break;
    case Verdict::kGreater:
      text +=
          fmt::format("\nis slower by {} % ({})", Percent(comparison.slowdown.estimate), slowdown);
      break;
    default:
      text += fmt::format("\ncannot tell whether it is slower by more than {:g} % ({})",
                          100 * options.slowdown_tolerance, slowdown);
  }
  if (comparison.pairs_needed >= kTooManyPairs) {
    text += "\nthe difference, if there is one, is too small to measure in a run of any length";
  } else if (comparison.pairs_needed > 0) {
    text += fmt::format("\nabout {} pairs of blocks would decide it (this run has {})",
                        comparison.pairs_needed, comparison.pairs);
  }
  return text;
}

}  // namespace perseus::profiler
