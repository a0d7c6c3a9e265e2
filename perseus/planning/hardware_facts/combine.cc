#include "perseus/planning/hardware_facts/combine.h"

#include <algorithm>
#include <limits>

#include "perseus/base/median.h"

namespace perseus::hardware_facts {

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
