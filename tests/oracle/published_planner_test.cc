// Compares our implementation of the published planner with the published frontiers.
#include "perseus/simulation/baselines/published_planner.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/oracle/published_frontier.h"
#include "tests/oracle/skip_without.h"

namespace perseus {
namespace {

// Both fits minimize the same sum of squares; the published one does so by iteration. If it stops
// when the relative change of the sum is below 1e-8, its curve differs from the best one by 1e-4 of
// the root mean square error. That error is at most a tenth of the energy, which gives 1e-5.
constexpr double kFitTolerance = 1e-5;

TEST(PublishedPlannerTest, FindsThePublishedFrontiers) {
  for (const MeasuredJob& job : kMeasuredJobs) {
    for (const int microbatches : {12, 24, 48, 96}) {
      SCOPED_TRACE(testing::Message() << job.name << ", " << microbatches);
      const auto path = PublishedFrontierPath(job, microbatches);
      SKIP_WITHOUT(path);
      const std::vector<PublishedPoint> published = ReadPublishedFrontier(path);
      ASSERT_FALSE(published.empty());
      const auto graph = ReadIteration(job, microbatches);
      ASSERT_TRUE(graph) << graph.error().message;
      const auto planner =
          baselines::PublishedPlanner::Create(*graph, job.blocking_power_w, job.planner_unit);
      ASSERT_TRUE(planner) << planner.error().message;
      std::map<Nanoseconds, double> energy_at;
      planner->ForEachSchedule([&](const baselines::PublishedPlanner::Schedule& schedule) {
        energy_at[schedule.time] = schedule.energy_j;
      });
      // The published frontier begins with the first schedule that is shorter than the slowest.
      EXPECT_EQ(planner->slowest(), ToNanoseconds(published.front().time_s) + job.planner_unit);
      EXPECT_EQ(planner->fastest(), ToNanoseconds(published.back().time_s));
      for (const PublishedPoint& point : published) {
        const auto found = energy_at.find(ToNanoseconds(point.time_s));
        ASSERT_NE(found, energy_at.end()) << point.time_s;
        EXPECT_NEAR(found->second, point.energy_j, kFitTolerance * point.energy_j) << point.time_s;
      }
    }
  }
}

}  // namespace
}  // namespace perseus
