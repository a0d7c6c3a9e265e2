// How far is our frontier below that of the published planner? Where is it above, and why? Prints
// the table of docs/benchmarks.md. Needs ../shared or PERSEUS_SHARED_DIR.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "bench/published_frontier.h"

namespace perseus {
namespace {

struct Comparison {
  int faster = 0;  // Their points below our least possible time.
  int above = 0;   // Their points below our bound.
  double highest_percent = -100;
};

Comparison Compare(std::span<const PublishedPoint> points, const Bounds& bounds) {
  Comparison comparison;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (std::isinf(bounds.energies_j[i])) {
      ++comparison.faster;
      continue;
    }
    const double percent = 100 * (bounds.energies_j[i] / points[i].energy_j - 1);
    if (percent > 0) ++comparison.above;
    comparison.highest_percent = std::max(comparison.highest_percent, percent);
  }
  return comparison;
}

int PrintTable() {
  if (!std::filesystem::exists(ProfilePath(kMeasuredJobs[0]))) {
    fmt::print(stderr, "{} is absent (set PERSEUS_SHARED_DIR to the folder of measurements)\n",
               ProfilePath(kMeasuredJobs[0]).string());
    return 1;
  }
  fmt::print(
      "| profile, microbatches | points | T_min published, ours (s) | too fast for the measured "
      "times | ours above, at most | ours above on their times, at most "
      "|\n|---|---|---|---|---|---|"
      "\n");
  for (const MeasuredJob& job : kMeasuredJobs) {
    for (const int microbatches : {12, 24, 48, 96}) {
      const auto points = ReadPublishedFrontier(PublishedFrontierPath(job, microbatches));
      const Result<schedule::InstructionGraph> graph = ReadIteration(job, microbatches);
      if (points.empty() || !graph) {
        fmt::print(stderr, "{} or its profile cannot be read (are the measurements complete?)\n",
                   PublishedFrontierPath(job, microbatches).string());
        return 1;
      }
      const Bounds measured = BoundsAt(points, *graph, job, Times::kMeasured);
      const Bounds rounded = BoundsAt(points, *graph, job, Times::kRoundedDown);
      const Comparison on_measured = Compare(points, measured);
      const Comparison on_rounded = Compare(points, rounded);
      fmt::print("| {}, {} | {} | {:.4f}, {:.4f} | {} | {}, {:+.2f} % | {}, {:+.2f} % |\n",
                 job.name, microbatches, points.size(), points.back().time_s, measured.least_time_s,
                 on_measured.faster, on_measured.above, on_measured.highest_percent,
                 on_rounded.above + on_rounded.faster, on_rounded.highest_percent);
    }
  }
  return 0;
}

}  // namespace
}  // namespace perseus

int main() { return perseus::PrintTable(); }
