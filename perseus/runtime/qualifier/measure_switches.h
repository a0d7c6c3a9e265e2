// From the request of a clock to its landing: up and down, near and far, of one GPU and of all at
// once. And how long the call takes.
//
// Thread safety: for the thread of the node.
#pragma once

#include "perseus/base/result.h"
#include "perseus/runtime/qualifier/qualify_run.h"

namespace perseus::qualifier {

// Requires run.can_set, and a landing that can be seen: in a kernel that computes, or in readings.
Result<void> MeasureSwitches(QualifyRun& run, PartOfRun part);

}  // namespace perseus::qualifier
