// What ran one after the other on a rank of a recorded step.
//
// An event comes after those of its rank that had ended when it began. Clocks are not exact: an
// overlap of up to half of the shorter one still counts as one after the other, and computations of
// a rank always do. Of these it waits for the last ones, from which the rest follows.
//
// O(n log n) for n events of which no more than kMostTogether run at a time; more are an error, as
// everything that waits for so many would make a step's graph quadratic.
#pragma once

#include <vector>

#include "perseus/base/result.h"
#include "perseus/simulation/replay/job_trace.h"

namespace perseus::replay {

inline constexpr int kMostTogether = 64;

// Whether `later` does not begin before `earlier` is done; both are of one rank, and `earlier` is
// the first of them in RecordedStep's order.
bool IsAfter(const JobEvent& earlier, const JobEvent& later);

// By event of the step: those of its rank that it comes right after. Fails (kInput) where too many
// events of a rank run at a time, naming one of them.
Result<std::vector<std::vector<int>>> OrderWithinRanks(const RecordedStep& step);

}  // namespace perseus::replay
