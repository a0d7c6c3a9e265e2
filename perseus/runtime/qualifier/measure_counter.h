// The energy counters of all GPUs at once, under load: period, resolution and bias.
//
// Thread safety: for the thread of the node.
#pragma once

#include "perseus/base/result.h"
#include "perseus/runtime/qualifier/qualify_run.h"

namespace perseus::qualifier {

// Takes that fraction of the duration. Requires run.can_read.
Result<void> MeasureCounter(QualifyRun& run, double fraction);

}  // namespace perseus::qualifier
