// Compares the frontiers of the published planner on the measured profiles with our implementation
// of that planner, and with our bounds.
#include <gtest/gtest.h>

#include <charconv>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "bench/measured_job.h"
#include "perseus/base/file.h"
#include "perseus/planning/frontier/walk.h"
#include "perseus/simulation/baselines/published_planner.h"

namespace perseus {
namespace {

struct PublishedPoint {
  double time_s = 0;
  double energy_j = 0;  // The energy of one GPU of each stage, including waiting.
};

// Returns the points from slow to fast. Empty if the file does not have the expected contents.
std::vector<PublishedPoint> ReadPublishedFrontier(const std::filesystem::path& path) {
  const Result<std::string> text = ReadFile(path);
  if (!text || !text->starts_with("time,energy\n")) return {};
  const char* const end = text->data() + text->size();
  std::vector<PublishedPoint> points;
  for (std::size_t line = text->find('\n') + 1; line < text->size();
       line = text->find('\n', line) + 1) {
    PublishedPoint point;
    const auto time = std::from_chars(text->data() + line, end, point.time_s);
    if (time.ec != std::errc() || time.ptr == end || *time.ptr != ',') return {};
    const auto energy = std::from_chars(time.ptr + 1, end, point.energy_j);
    if (energy.ec != std::errc() || energy.ptr == end || *energy.ptr != '\n') return {};
    points.push_back(point);
  }
  return points;
}

// Our lower bounds for an iteration that lasts as long as each point, including the energy of
// waiting. Times are rounded down to whole units, as in the published planner: an instruction of
// 50.16 ms takes 50 ms. Below the least possible time, the bound is infinite. Requires the points
// from slow to fast.
struct Bounds {
  std::vector<double> energies_j;
  double least_time_s = 0;
};
Bounds BoundsAt(std::span<const PublishedPoint> points, schedule::InstructionGraph graph,
                const MeasuredJob& job) {
  for (schedule::OptionSet& set : graph.option_sets) {
    for (profile::Option& option : set.options) {
      option.time -= option.time % job.planner_unit;
      option.energy_j = profile::EffectiveEnergy(option, job.blocking_power_w);
    }
  }
  const frontier::Network network = NetworkOf(graph, 0);  // The energies are already effective.
  double least_effective_energy_j = 0;
  for (const schedule::InstructionNode& instruction : graph.instructions) {
    least_effective_energy_j +=
        network.curves[static_cast<std::size_t>(instruction.option_set)].least_effective_energy_j;
  }
  Bounds bounds;
  frontier::Walk walk(network);
  for (const PublishedPoint& point : points) {
    const Nanoseconds time = ToNanoseconds(point.time_s);
    while (walk.time() > time && !walk.finished()) walk.Advance(time);
    bounds.energies_j.push_back(walk.time() > time
                                    ? std::numeric_limits<double>::infinity()
                                    : least_effective_energy_j + ToJoules(walk.extra_energy()) +
                                          job.blocking_power_w * kMeasuredStages * point.time_s);
  }
  while (!walk.finished()) walk.Advance(0);
  bounds.least_time_s = ToSeconds(walk.time());
  return bounds;
}

// Both fits minimize the same sum of squares. The published fit does so by iteration. It stops when
// the relative change of the sum is below 1e-8. At this stop, its curve differs from the best curve
// by 1e-4 of the root mean square error. That error is at most a tenth of the energy, so the
// tolerance is 1e-5.
constexpr double kFitTolerance = 1e-5;

TEST(PublishedPlannerTest, FindsThePublishedFrontiers) {
  for (const MeasuredJob& job : kMeasuredJobs) {
    for (const int microbatches : {12, 24, 48, 96}) {
      SCOPED_TRACE(testing::Message() << job.name << ", " << microbatches);
      const auto path = PublishedFrontierPath(job, microbatches);
      const std::vector<PublishedPoint> published = ReadPublishedFrontier(path);
      ASSERT_FALSE(published.empty());
      const auto graph = ReadIteration(job, microbatches);
      ASSERT_TRUE(graph) << graph.error().Message();
      const auto planner =
          baselines::PublishedPlanner::Create(*graph, job.blocking_power_w, job.planner_unit);
      ASSERT_TRUE(planner) << planner.error().Message();
      std::map<Nanoseconds, double> energy_at;
      planner->ForEachSchedule([&](const baselines::PublishedPlanner::Schedule& schedule) {
        energy_at[schedule.time] = schedule.energy_j;
      });
      // The published frontier begins with the first schedule that is shorter than the slowest
      // schedule.
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

// The published planner rounds times down. So its iterations are too short by up to one unit for
// each instruction on the critical path. With the same rounded times, our frontier must have
// exactly the same least time, in units. At each published time, it must have at most the published
// energy. The published energy comes from an exponential fit that our planner does not use. The
// comparison needs no margin for this difference. docs/benchmarks.md has the distances, also on
// unrounded times.
TEST(MeasuredJob, ThePublishedFrontierLiesOnOrAboveOurs) {
  for (const MeasuredJob& job : kMeasuredJobs) {
    for (const int microbatches : {12, 24, 48, 96}) {
      SCOPED_TRACE(testing::Message() << job.name << ", " << microbatches << " microbatches");
      const Result<schedule::InstructionGraph> graph = ReadIteration(job, microbatches);
      ASSERT_TRUE(graph) << graph.error().Message();
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
