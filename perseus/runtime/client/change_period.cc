#include "perseus/runtime/client/change_period.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include "perseus/base/statistics.h"

namespace perseus::client {

ChangePredictor::Start StartFrom(const std::vector<ChangeWindow>& changes) {
  constexpr double kUniform = 12;  // The square of the width of a uniform error, by its variance.
  constexpr double kLeastOfMedian = 0.7;
  constexpr double kMostOfMedian = 1.4;
  constexpr double kStepsPerPeak = 8;
  const Nanoseconds last = changes.back().until;
  const auto count = static_cast<double>(changes.size());
  std::vector<double> middles_ns;  // Before `last`, ascending.
  std::vector<double> between_ns;
  double error_ns2 = 0;
  for (const ChangeWindow& change : changes) {
    const auto width_ns = static_cast<double>(change.until - change.after);
    error_ns2 += width_ns * width_ns / kUniform / count;
    const double middle_ns = static_cast<double>(change.until - last) - width_ns / 2;
    if (!middles_ns.empty()) between_ns.push_back(middle_ns - middles_ns.back());
    middles_ns.push_back(middle_ns);
  }
  const double median_ns = Median(between_ns);
  const double step = 1 / kStepsPerPeak / (middles_ns.back() - middles_ns.front());
  std::complex<double> peak = 0;
  double rate = 1 / median_ns;
  for (double tried = 1 / (kMostOfMedian * median_ns); tried < 1 / (kLeastOfMedian * median_ns);
       tried += step) {
    std::complex<double> sum = 0;
    for (const double middle_ns : middles_ns) {
      sum += std::polar(1.0, 2 * std::numbers::pi * tried * middle_ns);
    }
    if (std::abs(sum) <= std::abs(peak)) continue;
    peak = sum;
    rate = tried;
  }
  // Regression of the middles on the numbers of their periods.
  const double phase = std::arg(peak) / (2 * std::numbers::pi);
  std::vector<double> numbers;
  double mean_number = 0;
  double mean_ns = 0;
  for (const double middle_ns : middles_ns) {
    numbers.push_back(std::round(middle_ns * rate - phase));
    mean_number += numbers.back() / count;
    mean_ns += middle_ns / count;
  }
  double squares = 0;
  double products = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    squares += (numbers[i] - mean_number) * (numbers[i] - mean_number);
    products += (numbers[i] - mean_number) * (middles_ns[i] - mean_ns);
  }
  ChangePredictor::Start start;
  start.period_ns = squares > 0 ? products / squares : median_ns;
  if (!(start.period_ns > 0)) start.period_ns = median_ns;
  squares = std::max(squares, 1.0);
  const double since_mean = numbers.back() - mean_number;
  start.last_change = last + static_cast<Nanoseconds>(mean_ns + since_mean * start.period_ns);
  start.last_change_error_ns =
      std::sqrt(error_ns2 * (1 / count + since_mean * since_mean / squares));
  start.period_error_ns = std::sqrt(error_ns2 / squares);
  start.shared_ns2 = error_ns2 * since_mean / squares;
  return start;
}

}  // namespace perseus::client
