// What the coordinator keeps in JOBDIR/tuner.json from one process to the next.
#pragma once

#include <filesystem>
#include <string>

#include "perseus/base/result.h"
#include "perseus/plan/plan_file.h"
#include "perseus/profiler/sweep.h"
#include "perseus/tuner/measurements.h"

namespace perseus {

struct TunerState {
  std::string
      job;  // The schedule that was measured: another one's measurements are not this one's.
  int rounds = 0;
  SweepSpent spent;
  Measurements measurements;
};

// A new one if there is no file. Fails (kInput) if it is of another job, with the remedy.
Result<TunerState> ReadTunerState(const std::filesystem::path& job_directory,
                                  const PlannedJob& job);
Result<void> WriteTunerState(const std::filesystem::path& job_directory, const TunerState& state);

}  // namespace perseus
