#include "perseus/planning/hardware_facts/combine.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "perseus/base/median.h"

namespace perseus::hardware_facts {
namespace {

constexpr double kMostMads = 5;
constexpr double kLeastPart = 0.1;

// How far the interval is from the value; 0 if it contains the value.
double Distance(const Estimate& estimate, double value) {
  return std::max({estimate.low - value, value - estimate.high, 0.0});
}

}  // namespace

Estimate Combine(const std::vector<Estimate>& estimates) {
  std::vector<double> values;
  Estimate all = LeastOf(estimates);
  for (const Estimate& estimate : estimates) {
    values.push_back(estimate.value);
    all.high = std::max(all.high, estimate.high);
  }
  all.value = Median(std::move(values));
  return all;
}

Estimate LeastOf(const std::vector<Estimate>& estimates) {
  Estimate least = estimates.front();
  long long samples = 0;
  for (const Estimate& estimate : estimates) {
    least.value = std::min(least.value, estimate.value);
    least.low = std::min(least.low, estimate.low);
    least.high = std::min(least.high, estimate.high);
    samples += estimate.samples;
  }
  least.samples = static_cast<int>(std::min<long long>(samples, kMostSamples));
  return least;
}

bool Comparison::has_differences() const {
  return std::find(differs.begin(), differs.end(), true) != differs.end();
}

Comparison Compare(const std::vector<Estimate>& estimates, double least_bound) {
  std::vector<double> values;
  values.reserve(estimates.size());
  for (const Estimate& estimate : estimates) values.push_back(estimate.value);
  Comparison comparison{.median = Median(values), .differs = {}};
  const auto bound = [&](double deviation) {
    return std::max({kMostMads * deviation, kLeastPart * std::abs(comparison.median), least_bound});
  };
  if (estimates.size() == 2) {
    const double gap =
        std::max(estimates[0].low - estimates[1].high, estimates[1].low - estimates[0].high);
    comparison.differs.assign(2, gap > bound(0));
    return comparison;
  }
  for (double& value : values) value = std::abs(value - comparison.median);
  const double most = bound(Median(std::move(values)));
  comparison.differs.reserve(estimates.size());
  for (const Estimate& estimate : estimates) {
    comparison.differs.push_back(Distance(estimate, comparison.median) > most);
  }
  return comparison;
}

std::vector<Estimate> UsualOf(const std::vector<Estimate>& estimates,
                              const Comparison& comparison) {
  std::vector<Estimate> usual;
  for (std::size_t i = 0; i < estimates.size(); ++i) {
    if (estimates.size() == 2 || !comparison.differs[i]) usual.push_back(estimates[i]);
  }
  return usual;
}

}  // namespace perseus::hardware_facts
