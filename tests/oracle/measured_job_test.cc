// The frontier of measured jobs: against CLP, and against the frontier that the published planner
// found on the same profiles.
#include "measured_job.h"

#include <gtest/gtest.h>

#include <charconv>
#include <string>
#include <vector>

#include "linear_program.h"
#include "perseus/base/file.h"
#include "perseus/frontier/deadline.h"
#include "perseus/frontier/walk.h"

namespace perseus {
namespace {

// Stands in each test, since GTEST_SKIP only leaves the function it is in.
#define SKIP_WITHOUT(path)                                                                         \
  if (!std::filesystem::exists(path)) {                                                            \
    GTEST_SKIP() << (path) << " is absent (set PERSEUS_SHARED_DIR to the folder of measurements)"; \
  }

TEST(MeasuredJob, BothSolversAgreeWithTheLinearProgram) {
  for (const MeasuredJob& job : kMeasuredJobs) {
    SKIP_WITHOUT(ProfilePath(job));
    for (const int microbatches : {12, 96}) {
      const Result<OperationGraph> graph = ReadIteration(job, microbatches);
      ASSERT_TRUE(graph) << graph.error().message;
      const Network network = NetworkOf(*graph, job.blocking_power_w);
      const auto sink = static_cast<std::size_t>(network.sink);
      const Nanoseconds least = EarliestTimes(network, Pace::kFastest)[sink];
      Walk walk(network);
      for (const int slowdown_percent : {20, 10, 2, 0}) {
        SCOPED_TRACE(testing::Message() << job.name << ", " << microbatches << " microbatches, "
                                        << slowdown_percent << " % above the least time");
        const Nanoseconds deadline = least + least * slowdown_percent / 100;
        while (walk.time() > deadline) walk.Advance(deadline);
        ASSERT_TRUE(CheckOptimality(network, walk.solution()));
        const Result<Solution> solution = SolveDeadline(network, deadline);
        ASSERT_TRUE(solution) << solution.error().message;
        ASSERT_TRUE(CheckOptimality(network, *solution));
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

struct PublishedPoint {
  double time_s = 0;
  double energy_j = 0;
};

std::vector<PublishedPoint> ReadPublishedFrontier(const std::filesystem::path& path) {
  const std::string text = *ReadFile(path);
  std::vector<PublishedPoint> points;
  for (std::size_t line = text.find('\n') + 1; line < text.size();
       line = text.find('\n', line) + 1) {
    const char* const end = text.data() + text.size();
    PublishedPoint point;
    const auto time = std::from_chars(text.data() + line, end, point.time_s);
    const auto energy = std::from_chars(time.ptr + 1, end, point.energy_j);
    EXPECT_TRUE(energy.ec == std::errc()) << path << ": " << text.substr(line, 40);
    points.push_back(point);
  }
  return points;
}

// The published planner sees times rounded down to whole units, so that an instruction of 50.16 ms
// lasts 50 ms: its iterations are too short by up to a unit for each instruction on the critical
// path. Given the same rounded times we must find its least time, to the unit, and at each of its
// times at most its energy. (Its own energy is that of an exponential fit, of which ours knows
// nothing; no margin is needed for that. docs/benchmarks.md has the distances, and those on the
// times as they were measured.)
TEST(MeasuredJob, ThePublishedFrontierLiesOnOrAboveOurs) {
  for (const MeasuredJob& job : kMeasuredJobs) {
    SKIP_WITHOUT(ProfilePath(job));
    for (const int microbatches : {12, 24, 48, 96}) {
      SCOPED_TRACE(testing::Message() << job.name << ", " << microbatches << " microbatches");
      SKIP_WITHOUT(PublishedFrontierPath(job, microbatches));
      Result<OperationGraph> graph = ReadIteration(job, microbatches);
      ASSERT_TRUE(graph) << graph.error().message;
      for (OptionSet& set : graph->option_sets) {
        for (Option& option : set.options) {
          // What it counts as the option's energy besides blocking keeps the measured time.
          option.energy_j = EffectiveEnergy(option, job.blocking_power_w);
          option.time -= option.time % job.planner_unit;
        }
      }
      const Network network = NetworkOf(*graph, 0);
      double least_effective_energy_j = 0;
      for (std::int32_t i = 0; i < network.operations; ++i) {
        least_effective_energy_j +=
            network.curve_of(network.arcs[static_cast<std::size_t>(i)]).least_effective_energy_j;
      }
      // From slow to fast, like the walk.
      const std::vector<PublishedPoint> published =
          ReadPublishedFrontier(PublishedFrontierPath(job, microbatches));
      ASSERT_GT(published.size(), 100U);
      Walk walk(network);
      for (const PublishedPoint& point : published) {
        const Nanoseconds time = ToNanoseconds(point.time_s);
        while (walk.time() > time && !walk.finished()) walk.Advance(time);
        ASSERT_LE(walk.time(), time);
        EXPECT_LE(least_effective_energy_j + ToJoules(walk.extra_energy()) +
                      job.blocking_power_w * kMeasuredStages * point.time_s,
                  point.energy_j)
            << "at " << point.time_s << " s";
      }
      while (!walk.finished()) walk.Advance(0);
      EXPECT_NEAR(published.back().time_s, ToSeconds(walk.time()), ToSeconds(job.planner_unit));
    }
  }
}

}  // namespace
}  // namespace perseus
