// The power of all GPUs at once: idle, blocked and busy, at several clocks. And whether a waiting
// GPU draws less with a lock of a range of clocks than with a lock of one clock.
//
// Thread safety: for the thread of the node.
#pragma once

#include "perseus/base/result.h"
#include "perseus/runtime/qualifier/qualify_run.h"

namespace perseus::qualifier {

// Requires run.can_read. Without run.can_set, at the clock that the driver chooses.
Result<void> MeasurePower(QualifyRun& run, PartOfRun part);

}  // namespace perseus::qualifier
