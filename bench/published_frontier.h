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

// How options count. The published planner rounds times down to whole units. An instruction of
// 50.16 ms then takes 50 ms, and others seem to wait longer.
enum class Times { kMeasured, kRoundedDown };

// Our lower bounds, with waiting included, of an iteration that lasts as long as each point. The
// bound is infinite below the least possible time. Requires the points from slow to fast.
struct Bounds {
  std::vector<double> energies_j;
  double least_time_s = 0;
};
Bounds BoundsAt(std::span<const PublishedPoint> points, schedule::InstructionGraph graph,
                const MeasuredJob& job, Times times);

}  // namespace perseus
