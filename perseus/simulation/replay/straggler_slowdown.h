// How much longer the steps of a recorded job take because some of their events are slow.
//
// The *ideal* step runs the graph of the recorded step, but every event takes the typical time of
// its name: the mean over all ranks and all steps, or the median for communication (without
// waiting, see trace_replay.h). The *straggler slowdown* is S = T / T_ideal. T is the replayed time
// of the step. Both leave out the host delays. For a job, T and T_ideal are sums over its steps.
//
// This is S of "Understanding Stragglers in Large Model Training Using What-if Analysis" (Lin et
// al., OSDI 2025). The median is for communication because a slow network makes a few transfers
// many times as long. The mean is for everything else because the work of a slow rank has to be
// done: the ideal job divides the same work evenly. So a stage with more layers than the others
// counts as a straggler, too. S is below 1 if a step is faster than the typical one.
#pragma once

#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/simulation/replay/trace_replay.h"

namespace perseus::replay {

struct StragglerSlowdown {
  Nanoseconds time = 0;   // T, above 0.
  Nanoseconds ideal = 0;  // T_ideal, above 0.

  double ratio() const { return ToSeconds(time) / ToSeconds(ideal); }
};

// One for each step, in the order of the trace. Fails (kInput) if the events of an ideal step would
// last more than 36 years in total.
Result<std::vector<StragglerSlowdown>> StragglerSlowdowns(const TraceGraph& trace);

// Of the whole job. Requires a step.
StragglerSlowdown SumOf(const std::vector<StragglerSlowdown>& steps);

}  // namespace perseus::replay
