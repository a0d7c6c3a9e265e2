// The frontiers that the published planner found on the measured profiles, beside our bounds.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "bench/measured_job.h"

namespace perseus {

struct PublishedPoint {
  double time_s = 0;
  double energy_j = 0;  // Of one GPU of each stage, waiting included.
};

// From slow to fast. Empty if the file is not what it should be.
std::vector<PublishedPoint> ReadPublishedFrontier(const std::filesystem::path& path);

// How the options count. The published planner sees times rounded down to whole units, so that an
// instruction of 50.16 ms lasts 50 ms, and is waited for the longer.
enum class Times { kMeasured, kRoundedDown };

// At each point's time our bound on the energy of an iteration that lasts so long, waiting
// included; infinite where that is less than the least possible time. Points from slow to fast.
struct Bounds {
  std::vector<double> energies_j;
  double least_time_s = 0;
};
Bounds BoundsAt(std::span<const PublishedPoint> points, schedule::InstructionGraph graph,
                const MeasuredJob& job, Times times);

}  // namespace perseus
