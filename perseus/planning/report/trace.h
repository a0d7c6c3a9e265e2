// The timeline of an iteration, to look at: https://ui.perfetto.dev or chrome://tracing.
//
// The file is in the Trace Event Format (JSON). Each timeline is a process with a lane for each
// rank; a slice is an instruction ("F3": the forward of microbatch 3), a gap is a rank that waits.
// Click a slice for its clock, energy and power. A counter shows the power of the whole pipeline,
// so that the baseline and a plan can be compared at a glance.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::report {

struct Timeline {
  std::string name;  // "baseline", "no slowdown".
  std::vector<int> options;
  plan::Evaluation evaluation;  // Of those options.
  Nanoseconds until = 0;        // Ranks wait until then, where that is after the evaluation's end.
};

// Timelines become processes 1, 2, ... in the order given, all starting at 0.
std::string FormatTrace(const schedule::InstructionGraph& graph, double blocking_power_w,
                        std::span<const Timeline> timelines);

}  // namespace perseus::report
