// Finds when a clock landed, in the rate of the work that ran on the GPU meanwhile.
//
// A kernel that computes does work at a rate proportional to the SM clock. So the rate has a level
// before the switch and another one after it. The landing is the moment that splits the series into
// the two levels with the least sum of squared errors. If the clock moves in a ramp, this is close
// to the moment at which one jump would have done the same work, which is what a plan needs.
//
// The moment is between two samples. So it is exact to about half their distance.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <vector>

#include "perseus/base/units.h"

namespace perseus::qualifier {

// How much work a kernel had done at a time. Only differences of work have a meaning.
struct WorkSample {
  Nanoseconds at = 0;
  double work = 0;
};

struct ExpectedSwitch {
  Nanoseconds call_begin = 0;  // The samples before are at the old clock.
  double clock_ratio = 1;      // The new clock divided by the old one. Not 1.
};

// Empty if the series has fewer than four samples before the call or after the landing, or if the
// levels differ by less than half of what the clocks differ by. Then the clock has not landed by
// the end of the series, or something else limits it.
std::optional<Nanoseconds> FindLanding(const std::vector<WorkSample>& samples,
                                       const ExpectedSwitch& expected);

}  // namespace perseus::qualifier
