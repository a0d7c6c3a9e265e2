// What an energy counter is worth: how often it changes, by how much at least, and whether it
// counts as much as the power readings say.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/runtime/qualifier/statistics.h"

namespace perseus::qualifier {

// A reading of the counter. Two neighbors enclose the moment of a change.
struct CounterReading {
  Nanoseconds at = 0;
  double energy_j = 0;
  double power_w = 0;  // The driver's power reading of that moment.
};

struct CounterFindings {
  Estimate period_ms;       // Between two changes: the median.
  double resolution_j = 0;  // What every increase is a multiple of.
  // Counted energy divided by integrated power, minus 1. Positive: the counter counts more.
  Estimate bias;
};

// Needs at least seven changes; empty otherwise. Readings should be at least ten times as frequent
// as the changes, and the load constant.
//
// The bias compares with power readings, which have an error of their own (NVIDIA states about 5 %
// for most boards). So it says whether the two agree, not which of them is right.
std::optional<CounterFindings> ExamineCounter(const std::vector<CounterReading>& readings);

// The mean power by the counter, between its first and last change, with the interval of at least
// `blocks` blocks. Empty if the counter changed too rarely for so many.
std::optional<Estimate> PowerByCounter(const std::vector<CounterReading>& readings, int blocks);

}  // namespace perseus::qualifier
