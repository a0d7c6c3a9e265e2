// Compares two runs of a job, from their rank logs: for example one with 1F1B and one with a
// schedule that was searched for, because a running job does not change its schedule.
//
// The last steps of both runs are cut into blocks of equal length, and block k of one run is paired
// with block k of the other (profiler/comparison.h). Unlike the pairs of verification.h, no coin
// decides which block comes first: the runs are separate. So the interval covers noise within the
// runs, and not what differs between them: the temperature, the nodes, the network. Runs on the
// same nodes, alternated, show that part.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/runtime/profiler/comparison.h"

namespace perseus::tuner {

struct RunsToCompare {
  std::filesystem::path directory;  // Job directories. Either job may still run.
  std::filesystem::path against;    // The baseline.
  int steps = 0;                    // Of each run, at most.
  double counter_period_s = 0.1;
  profiler::ComparisonOptions comparison;
};

struct RunComparison {
  profiler::Comparison comparison;
  std::vector<profiler::BlockPair> pairs;  // Sums over all ranks, per step.
  int block_length = 0;                    // In steps.
  // The first step that counts in each run.
  std::int64_t first_step = 0;
  std::int64_t first_step_against = 0;
};

// Uses the last steps that all ranks ran with one assignment. Fails (kInput) if a directory has no
// logs, if the runs have different ranks, if a rank has no energy, or if there are fewer steps than
// LeastPairs(level) blocks need. A block is as long as three periods of the energy counter.
Result<RunComparison> CompareRuns(const RunsToCompare& runs);

}  // namespace perseus::tuner
