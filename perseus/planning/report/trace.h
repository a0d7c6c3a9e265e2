// Writes timelines of an iteration in the Trace Event Format (JSON), for https://ui.perfetto.dev or
// chrome://tracing.
//
// Each timeline is a process with a lane for each pp_rank. A slice is an instruction ("F3" is the
// forward of microbatch 3). In a gap, the pp_rank waits. The arguments of a slice are its clock,
// energy and power. A counter shows the power of the whole pipeline. With it, a user can compare
// the baseline and a plan.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::report {

struct Timeline {
  std::string name;             // Such as "baseline" or "no slowdown".
  std::vector<int> options;     // [instruction] an index into its option set.
  plan::Evaluation evaluation;  // The evaluation of these options.
  Nanoseconds until = 0;  // If this is after the end of the evaluation, pp_ranks wait until it.
};

// The timelines become the processes 1, 2, ..., in the given order. All start at time 0.
std::string FormatTrace(const schedule::InstructionGraph& graph, double blocking_power_w,
                        std::span<const Timeline> timelines);

}  // namespace perseus::report
