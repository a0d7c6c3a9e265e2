// Which events ran one after the other on a rank of a recorded step.
//
// An event comes after those events of its rank that had ended when it began. Clocks are not exact:
// if two events overlap by up to half of the shorter one, they still count as one after the other.
// The computations of a rank always do. Of all earlier events, an event waits for the last ones
// only. The rest follows from them.
//
// O(n log n) for n events, of which at most kMostTogether run at the same time. More are an error:
// if everything waited for so many events, the graph of a step would be quadratic.
#pragma once

#include <vector>

#include "perseus/base/result.h"
#include "perseus/simulation/replay/job_trace.h"

namespace perseus::replay {

inline constexpr int kMostTogether = 64;

// Whether `later` does not begin before `earlier` is done; both are of one rank, and `earlier` is
// the first of them in RecordedStep's order.
bool IsAfter(const JobEvent& earlier, const JobEvent& later);

// For each event of the step: the events of its rank that it comes directly after. Fails (kInput)
// if too many events of a rank run at the same time; the message names one of them.
Result<std::vector<std::vector<int>>> OrderWithinRanks(const RecordedStep& step);

}  // namespace perseus::replay
