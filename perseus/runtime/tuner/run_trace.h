// A timeline of what a job really ran, from its ranks' logs, for https://ui.perfetto.dev (Trace
// Event Format, as plan/trace.h has it).
//
// A process a pipeline with a lane a rank: slices are instructions, click one for the clock that
// was asked for. Counters beside it: each GPU's requested and applied clock, and its power (from
// one new value of its energy counter to the next). Where plans are given, every step has them
// beside it, each in a process of its own: what should have run, from the moment at which the step
// began.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/runtime/tuner/job_logs.h"

namespace perseus::tuner {

struct TraceRange {
  std::int64_t first = 0;  // Steps, inclusive.
  std::int64_t last = 0;
};

// Hosts' clocks are laid side by side by their headers. Fails (kInput) if nobody recorded a step of
// the range, naming those that there are.
Result<std::string> FormatRunTrace(const JobLogs& logs, const TraceRange& range,
                                   const std::vector<plan_file::PlanFile>& plans);

}  // namespace perseus::tuner
