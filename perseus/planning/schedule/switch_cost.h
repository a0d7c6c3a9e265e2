// What a clock change costs, besides the time until it takes effect.
#pragma once

#include "perseus/base/units.h"

namespace perseus::schedule {

struct SwitchCost {
  Nanoseconds stall = 0;  // The GPU does no work for so long.
  double energy_j = 0;    // On top of the blocking power during the stall.

  bool IsNone() const { return stall == 0 && energy_j == 0; }
};

}  // namespace perseus::schedule
