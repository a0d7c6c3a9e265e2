#include "perseus/runtime/qualifier/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace perseus::qualifier {
namespace {

// Each side of the interval excludes at most this probability.
constexpr double kTail = 0.025;

// P(X <= k) of a binomial X with n trials.
double BinomialUpTo(int k, int n, double part) {
  double sum = 0;
  for (int i = 0; i <= k; ++i) {
    const double log_choose = std::lgamma(n + 1) - std::lgamma(i + 1) - std::lgamma(n - i + 1);
    sum += std::exp(log_choose + i * std::log(part) + (n - i) * std::log1p(-part));
  }
  return sum;
}

struct Ranks {
  int low = 0;  // Of the sorted samples, from 0. -1 and n: none.
  int high = 0;
};

// Sample k (sorted, from 0) is above the true quantile if at most k samples are below the quantile,
// and below it if more are.
Ranks RanksOf(int n, double part) {
  Ranks ranks{-1, n};
  while (ranks.low + 1 < n && BinomialUpTo(ranks.low + 1, n, part) <= kTail) ++ranks.low;
  while (ranks.high - 1 >= 0 && 1 - BinomialUpTo(ranks.high - 1, n, part) <= kTail) --ranks.high;
  return ranks;
}

// The 97.5 % quantile of Student's t.
double StudentT(int degrees) {
  constexpr double kTable[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                               2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                               2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
                               2.060,  2.056, 2.052, 2.048, 2.045, 2.042};
  constexpr int kEntries = static_cast<int>(std::size(kTable));
  return kTable[std::min(degrees, kEntries) - 1];
}

}  // namespace

std::optional<Estimate> QuantileOf(std::vector<double> samples, double part) {
  if (samples.empty()) return std::nullopt;
  std::sort(samples.begin(), samples.end());
  const int n = static_cast<int>(samples.size());
  const auto at = [&](int rank) {
    return samples[static_cast<std::size_t>(std::clamp(rank, 0, n - 1))];
  };
  // The median of an even number is between two samples.
  const double position = part * n;
  const int upper = static_cast<int>(std::floor(position));
  const bool is_between = position == std::floor(position) && part == 0.5;
  const Ranks ranks = RanksOf(n, part);
  const double value =
      is_between ? (at(upper - 1) + at(upper)) / 2 : at(static_cast<int>(std::ceil(position)) - 1);
  return Estimate{.value = value,
                  .low = std::min(value, at(ranks.low)),
                  .high = std::max(value, at(ranks.high)),
                  .samples = n};
}

std::optional<Estimate> MedianOf(std::vector<double> samples) {
  return QuantileOf(std::move(samples), 0.5);
}

bool IsEnclosed(int samples, double part) {
  const Ranks ranks = RanksOf(samples, part);
  return ranks.low >= 0 && ranks.high < samples;
}

std::optional<Estimate> MeanOf(const std::vector<double>& samples) {
  if (samples.empty()) return std::nullopt;
  const int n = static_cast<int>(samples.size());
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / n;
  if (n == 1) return Estimate{.value = mean, .low = mean, .high = mean, .samples = 1};
  double squares = 0;
  for (const double sample : samples) squares += (sample - mean) * (sample - mean);
  const double half = StudentT(n - 1) * std::sqrt(squares / (n - 1) / n);
  return Estimate{.value = mean, .low = mean - half, .high = mean + half, .samples = n};
}

}  // namespace perseus::qualifier
