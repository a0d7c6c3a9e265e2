#include "perseus/planning/hardware_facts/median.h"

#include <algorithm>
#include <limits>

namespace perseus::hardware_facts {

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

Estimate Combine(const std::vector<Estimate>& estimates) {
  std::vector<double> values;
  Estimate all = estimates.front();
  long long samples = 0;
  for (const Estimate& estimate : estimates) {
    values.push_back(estimate.value);
    all.low = std::min(all.low, estimate.low);
    all.high = std::max(all.high, estimate.high);
    samples += estimate.samples;
  }
  all.value = Median(std::move(values));
  all.samples = static_cast<int>(std::min<long long>(samples, kMostSamples));
  return all;
}

}  // namespace perseus::hardware_facts
