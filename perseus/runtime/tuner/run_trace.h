// A timeline of what a job really ran, from its rank logs, for https://ui.perfetto.dev (in the
// Trace Event Format, plan_file/trace_events.h).
//
// A process of the timeline is a pipeline, and a lane is a rank. Slices are instructions, with
// their requested clocks as arguments. Counters show the requested and the applied clock of each
// GPU, and its power (between two new values of its energy counter). If plans are given, each step
// shows its plan as an additional process. The plan starts at the beginning of the step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/runtime/tuner/job_logs.h"

namespace perseus::tuner {

struct TraceRange {
  // A range of steps. It includes the first and the last step.
  std::int64_t first = 0;
  std::int64_t last = 0;
};

// Returns the timeline. The headers of the logs align the clocks of different hosts. Fails (kInput)
// if no rank recorded a step of the range. The message names the available steps.
Result<std::string> FormatRunTrace(const JobLogs& logs, const TraceRange& range,
                                   const std::vector<plan_file::PlanFile>& plans);

}  // namespace perseus::tuner
