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

Estimate HarmlessRate(std::vector<RateSlowdown> rates) {
  std::sort(rates.begin(), rates.end(), [](const RateSlowdown& a, const RateSlowdown& b) {
    return a.changes_per_s < b.changes_per_s;
  });
  Estimate found{.value = 0, .low = 0, .high = rates.back().changes_per_s, .samples = 0};
  bool is_harmful = false;
  for (const RateSlowdown& rate : rates) {
    found.samples += rate.slowdown.samples;
    if (is_harmful) continue;
    if (rate.slowdown.low > kHarmfulSlowdown) {
      is_harmful = true;
      found.high = rate.changes_per_s;
    } else if (rate.slowdown.high < kHarmfulSlowdown) {
      found.value = rate.changes_per_s;
    }
  }
  found.low = found.value;
  return found;
}

}  // namespace perseus::qualifier
