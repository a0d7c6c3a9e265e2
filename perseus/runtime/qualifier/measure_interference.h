// What clock changes, readings and host functions cost the work that runs beside them, and from
// that the greatest rate of changes that harms no operation.
//
// Thread safety: for the thread of the node.
#pragma once

#include "perseus/base/result.h"
#include "perseus/runtime/qualifier/qualify_run.h"

namespace perseus::qualifier {

Result<void> MeasureInterference(QualifyRun& run, PartOfRun part);

}  // namespace perseus::qualifier
