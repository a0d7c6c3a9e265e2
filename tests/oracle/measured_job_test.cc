// Compares the frontier of measured jobs with CLP, and with the frontier that the published planner
// found on the same profiles.
#include "bench/measured_job.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/oracle/published_frontier.h"
#include "tests/oracle/skip_without.h"
#include "tests/oracle/solver_agreement.h"

namespace perseus {
namespace {

TEST(MeasuredJob, BothSolversAgreeWithTheLinearProgram) {
  for (const MeasuredJob& job : kMeasuredJobs) {
    SKIP_WITHOUT(ProfilePath(job));
    for (const int microbatches : {12, 96}) {
      SCOPED_TRACE(testing::Message() << job.name << ", " << microbatches << " microbatches");
      const Result<schedule::InstructionGraph> graph = ReadIteration(job, microbatches);
      ASSERT_TRUE(graph) << graph.error().message;
      ExpectSolversAgree(NetworkOf(*graph, job.blocking_power_w));
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
      const Bounds bounds = BoundsAt(points, *graph, job);
      for (std::size_t i = 0; i < points.size(); ++i) {
        EXPECT_LE(bounds.energies_j[i], points[i].energy_j) << "at " << points[i].time_s << " s";
      }
      EXPECT_NEAR(points.back().time_s, bounds.least_time_s, ToSeconds(job.planner_unit));
    }
  }
}

}  // namespace
}  // namespace perseus
