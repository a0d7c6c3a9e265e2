// Checks invariants 1 to 5 of a JobTrace (job_trace.h).
#pragma once

#include <fmt/core.h>

#include <string>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/simulation/replay/job_trace.h"

namespace perseus::replay {

// Fails (kInput) if the timeline is incomplete or contradicts itself. The message names the event.
Result<void> CheckJobTrace(const JobTrace& trace, Nanoseconds clock_tolerance);

// "1.500 ms"
inline std::string InMilliseconds(Nanoseconds time) {
  return fmt::format("{:.3f} ms", ToMilliseconds(time));
}

}  // namespace perseus::replay
