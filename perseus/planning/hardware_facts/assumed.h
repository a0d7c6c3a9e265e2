// What plans assume about clock changes of a GPU for which nobody has measured hardware facts. The
// values are those of an H100 (docs/hardware.md). Measured facts, settings and job files replace
// each of them.
#pragma once

#include "perseus/base/units.h"

namespace perseus::hardware_facts {

// From the request of a change until the GPU has the new clock: 10 to 20 ms.
inline constexpr Nanoseconds kAssumedSwitchLatency = 15 * kMillisecond;

// The time for which a change stops the work of its GPU: the median of 0.11 ms.
inline constexpr Nanoseconds kAssumedSwitchStall = 110'000;

// The greatest rate of changes that a GPU follows. NCCL was seen to slow down with a change every
// 50 ms.
inline constexpr double kAssumedChangesPerS = 20;

}  // namespace perseus::hardware_facts
