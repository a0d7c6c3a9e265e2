// What clock changes and readings cost the work that runs beside them.
//
// Blocks without and with the disturbance alternate, so that a slow drift (heat) affects both. Each
// pair gives one ratio of the mean time of an operation, and the ratios give an interval. The mean
// and not the median counts: a driver that holds up one launch in a thousand for 10 ms leaves the
// median as it is, and a collective waits for the one.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <vector>

#include "perseus/runtime/qualifier/statistics.h"

namespace perseus::qualifier {

// The mean times of an operation, without and with the disturbance, one after the other.
struct BlockPair {
  double quiet_ns = 0;
  double disturbed_ns = 0;
};

// By which fraction an operation takes longer: 0 for no effect. Empty without pairs.
std::optional<Estimate> SlowdownOf(const std::vector<BlockPair>& pairs);

struct RateSlowdown {
  double changes_per_s = 0;
  Estimate slowdown;
};

// An operation that takes 1 % longer is harmed.
inline constexpr double kHarmfulSlowdown = 0.01;

// The greatest of the measured rates that is shown to be harmless: the upper end of the interval of
// its slowdown is below kHarmfulSlowdown, and no lower rate is shown to harm. 0 if no rate is. This
// is a lower estimate: a wide interval makes it lower, never higher, and a rate that was not tried
// is never the result.
//
// The true greatest harmless rate is in the interval. Its upper end is the least rate that is shown
// to harm (the lower end of the interval of its slowdown is above kHarmfulSlowdown). Without such a
// rate, it is the greatest one that was tried, and the truth may be above it. Requires rates.
Estimate HarmlessRate(std::vector<RateSlowdown> rates);

}  // namespace perseus::qualifier
