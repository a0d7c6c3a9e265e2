// What can be measured on a node, found before anything is measured.
//
// Thread safety: for the thread of the node.
#pragma once

#include "perseus/base/result.h"
#include "perseus/runtime/qualifier/qualify_run.h"

namespace perseus::qualifier {

// Sets can_set, can_read and clocks of `run`, with a limit for each thing that is impossible. Fails
// if the GPUs are of different kinds, or if a driver fails in another way than by refusing.
Result<void> CheckNode(QualifyRun& run);

}  // namespace perseus::qualifier
