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

// The largest of the measured rates below the first harmful one. A rate is harmful if its whole
// interval is above kHarmfulSlowdown. 0 if the smallest rate is harmful. Requires rates.
double GreatestHarmlessRate(std::vector<RateSlowdown> rates);

}  // namespace perseus::qualifier
