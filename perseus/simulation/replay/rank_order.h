// Which events ran one after another on a rank of a recorded step.
//
// An event comes after those events of its rank that had ended when it began. Clocks are not exact.
// So two events that overlap by at most half of the shorter one still count as one after another.
// The computations of a rank always do. Of all earlier events, an event waits for the last ones
// only. The other orders follow from these.
//
// The cost is O(n log n) for n events, of which fewer than kMostConcurrentEvents run at the same
// time. More are an error: the graph of a step would be quadratic.
#pragma once

#include <vector>

#include "perseus/base/result.h"
#include "perseus/simulation/replay/job_trace.h"

namespace perseus::replay {

inline constexpr int kMostConcurrentEvents = 64;

// Whether `later` counts as beginning after `earlier` has ended. Both are events of one rank, and
// `earlier` is the first of them in the order of RecordedStep.
bool IsAfter(const JobEvent& earlier, const JobEvent& later);

// For each event of the step, the events of its rank that it comes directly after. Fails (kInput)
// if too many events of a rank run at the same time. The message names one of them.
Result<std::vector<std::vector<int>>> OrderWithinRanks(const RecordedStep& step);

}  // namespace perseus::replay
