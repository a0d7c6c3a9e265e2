// Compares the frontier of measured jobs with CLP, and with the frontier that the published planner
// found on the same profiles.
#include "bench/measured_job.h"

#include <gtest/gtest.h>

#include <vector>

#include "bench/published_frontier.h"
#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/frontier/walk.h"
#include "tests/oracle/linear_program.h"

namespace perseus {
namespace {

// A macro, because GTEST_SKIP leaves only the function that contains it.
#define SKIP_WITHOUT(path)                                                                         \
  if (!std::filesystem::exists(path)) {                                                            \
    GTEST_SKIP() << (path) << " is absent (set PERSEUS_SHARED_DIR to the folder of measurements)"; \
  }

TEST(MeasuredJob, BothSolversAgreeWithTheLinearProgram) {
  for (const MeasuredJob& job : kMeasuredJobs) {
    SKIP_WITHOUT(ProfilePath(job));
    for (const int microbatches : {12, 96}) {
      const Result<schedule::InstructionGraph> graph = ReadIteration(job, microbatches);
      ASSERT_TRUE(graph) << graph.error().message;
      const frontier::Network network = NetworkOf(*graph, job.blocking_power_w);
      const auto sink = static_cast<std::size_t>(network.sink);
      const Nanoseconds least = frontier::EarliestTimes(network, frontier::Pace::kFastest)[sink];
      frontier::Walk walk(network);
      for (const int slowdown_percent : {20, 10, 2, 0}) {
        SCOPED_TRACE(testing::Message() << job.name << ", " << microbatches << " microbatches, "
                                        << slowdown_percent << " % above the least time");
        const Nanoseconds deadline = least + least * slowdown_percent / 100;
        while (walk.time() > deadline) walk.Advance(deadline);
        ASSERT_TRUE(frontier::CheckOptimality(network, walk.solution()));
        const Result<frontier::Solution> solution = frontier::SolveDeadline(network, deadline);
        ASSERT_TRUE(solution) << solution.error().message;
        ASSERT_TRUE(frontier::CheckOptimality(network, *solution));
        ASSERT_TRUE(solution->extra_energy == walk.extra_energy());

        const LinearOptimum optimum =
            SolveLinearProgram(network, deadline, {.time = 1'000'000, .slope = 1'000'000});
        ASSERT_TRUE(optimum.solved);
        const double energy_j = ToJoules(walk.extra_energy());
        EXPECT_NEAR(optimum.proved_j, energy_j, 1e-6 * energy_j);
        EXPECT_NEAR(optimum.objective_j, energy_j, 1e-6 * energy_j);
      }
    }
  }
}

// The published planner rounds times down, so its iterations are too short by up to one unit for
// each instruction on the critical path. With the same rounded times, our frontier must have the
// same least time, to the unit, and at each published time at most the published energy. The
// published energy comes from an exponential fit that our planner does not use; the comparison
// needs no margin for that. docs/benchmarks.md has the distances, also on unrounded times.
TEST(MeasuredJob, ThePublishedFrontierLiesOnOrAboveOurs) {
  for (const MeasuredJob& job : kMeasuredJobs) {
    SKIP_WITHOUT(ProfilePath(job));
    for (const int microbatches : {12, 24, 48, 96}) {
      SCOPED_TRACE(testing::Message() << job.name << ", " << microbatches << " microbatches");
      SKIP_WITHOUT(PublishedFrontierPath(job, microbatches));
      const Result<schedule::InstructionGraph> graph = ReadIteration(job, microbatches);
      ASSERT_TRUE(graph) << graph.error().message;
      const std::vector<PublishedPoint> points =
          ReadPublishedFrontier(PublishedFrontierPath(job, microbatches));
      ASSERT_GT(points.size(), 100U);
      const Bounds bounds = BoundsAt(points, *graph, job, Times::kRoundedDown);
      for (std::size_t i = 0; i < points.size(); ++i) {
        EXPECT_LE(bounds.energies_j[i], points[i].energy_j) << "at " << points[i].time_s << " s";
      }
      EXPECT_NEAR(points.back().time_s, bounds.least_time_s, ToSeconds(job.planner_unit));
    }
  }
}

}  // namespace
}  // namespace perseus
