#include "perseus/runtime/qualifier/interference.h"

#include <algorithm>

namespace perseus::qualifier {

std::optional<Estimate> SlowdownOf(const std::vector<BlockPair>& pairs) {
  std::vector<double> ratios;
  for (const BlockPair& pair : pairs) {
    if (pair.quiet_ns > 0) ratios.push_back(pair.disturbed_ns / pair.quiet_ns - 1);
  }
  return MeanOf(ratios);
}

double GreatestHarmlessRate(std::vector<RateSlowdown> rates) {
  std::sort(rates.begin(), rates.end(), [](const RateSlowdown& a, const RateSlowdown& b) {
    return a.changes_per_s < b.changes_per_s;
  });
  double greatest = 0;
  for (const RateSlowdown& rate : rates) {
    if (rate.slowdown.low > kHarmfulSlowdown) break;
    greatest = rate.changes_per_s;
  }
  return greatest;
}

}  // namespace perseus::qualifier
