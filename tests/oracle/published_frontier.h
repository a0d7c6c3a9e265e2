// The frontiers of the published planner on the measured profiles, compared with our bounds.
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

// The points from slow to fast. Empty if the file does not have the expected contents.
std::vector<PublishedPoint> ReadPublishedFrontier(const std::filesystem::path& path);

// Our lower bounds, with waiting included, of an iteration that lasts as long as each point. Times
// are rounded down to whole units, as the published planner does: an instruction of 50.16 ms takes
// 50 ms. The bound is infinite below the least possible time. Requires the points from slow to
// fast.
struct Bounds {
  std::vector<double> energies_j;
  double least_time_s = 0;
};
Bounds BoundsAt(std::span<const PublishedPoint> points, schedule::InstructionGraph graph,
                const MeasuredJob& job);

}  // namespace perseus
