// Tests of SharpenedWindows: feasible schedules of the given length that need less rounding.
#include "perseus/planning/plan/search/sharpening.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "perseus/base/index.h"
#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/plan/planner.h"
#include "tests/support/planning_jobs.h"
#include "tests/support/seeds.h"

namespace perseus::plan {
namespace {

Planner SharpeningMakePlanner(const JobSpec& spec, std::uint64_t seed) {
  Result<Planner> planner = Planner::Create(RandomJob(spec, seed), {RandomBlockingPower(seed), 0});
  EXPECT_TRUE(planner) << planner.error().message;
  return *std::move(planner);
}

Nanoseconds Between(const Planner& planner, std::uint64_t tenths) {
  const frontier::Network& network = planner.network();
  const Nanoseconds slowest =
      frontier::EarliestTimes(network, frontier::Pace::kSlowest)[At(network.sink)];
  const Nanoseconds least = planner.least_time();
  return least + (slowest - least) * static_cast<Nanoseconds>(tenths) / 10;
}

int InsideSegments(const frontier::Network& network, const Windows& windows) {
  int inside = 0;
  for (std::int32_t i = 0; i < network.instructions; ++i) {
    const profile::Curve& curve = network.curve_of(network.arcs[At(i)]);
    const Nanoseconds duration = windows.ends[At(i)] - windows.starts[At(i)];
    inside += duration < curve.slowest() &&
              !std::binary_search(curve.times.begin(), curve.times.end(), duration);
  }
  return inside;
}

// If tilting or sharpening broke the convexity of a curve, the solver would not find an optimum, or
// it would find a schedule in which an instruction is faster than its fastest option.
TEST(SharpenedWindows, AreSchedulesOfThatLength) {
  for (std::uint64_t seed = 0; seed < Seeds(500); ++seed) {
    SCOPED_TRACE(seed);
    const auto shape = seed % 2 == 0 ? JobShape::kPipeline : JobShape::kAnyOrder;
    const Planner planner = SharpeningMakePlanner({.shape = shape, .instructions = 24}, seed);
    const Nanoseconds length = Between(planner, seed % 11);
    const Tilt tilt{seed % 3 == 0 ? TiltBy::kInstruction : TiltBy::kMicrobatch,
                    seed % 5 == 0 ? 0.9 : 0.1, seed};
    const auto rounds = static_cast<int>(seed % 6);
    const auto optimum = frontier::SolveDeadline(planner.network(), length);
    ASSERT_TRUE(optimum) << optimum.error().message;
    const Result<Windows> windows =
        SharpenedWindows(planner.network(), planner.graph(), *optimum, tilt, rounds);
    ASSERT_TRUE(windows) << windows.error().message;
    EXPECT_EQ(windows->length, length);
    const schedule::InstructionGraph& graph = planner.graph();
    for (std::size_t i = 0; i < graph.instructions.size(); ++i) {
      const profile::Curve& curve = planner.network().curve_of(planner.network().arcs[i]);
      EXPECT_GE(windows->starts[i], 0);
      EXPECT_GE(windows->ends[i] - windows->starts[i], curve.fastest());
      EXPECT_LE(windows->ends[i], length);
    }
    for (const schedule::Dependency& dependency : graph.dependencies) {
      EXPECT_GE(windows->starts[At(dependency.to)],
                windows->ends[At(dependency.from)] + dependency.delay);
    }
    const Result<Windows> again =
        SharpenedWindows(planner.network(), graph, *optimum, tilt, rounds);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->starts, windows->starts);
    EXPECT_EQ(again->ends, windows->ends);
  }
}

TEST(SharpenedWindows, PutMostInstructionsOnVertices) {
  int relaxed = 0;
  int sharpened = 0;
  for (std::uint64_t seed = 0; seed < Seeds(200); ++seed) {
    const Planner planner = SharpeningMakePlanner(
        {.shape = JobShape::kPipeline, .instructions = 40, .options = 6}, seed);
    const Nanoseconds length = Between(planner, 1 + seed % 9);
    const Result<frontier::Solution> solution = frontier::SolveDeadline(planner.network(), length);
    ASSERT_TRUE(solution);
    relaxed += InsideSegments(planner.network(), WindowsOf(planner.network(), *solution));
    const Result<Windows> windows =
        SharpenedWindows(planner.network(), planner.graph(), *solution, {}, 4);
    ASSERT_TRUE(windows);
    sharpened += InsideSegments(planner.network(), *windows);
  }
  EXPECT_LT(sharpened, relaxed);
}

}  // namespace
}  // namespace perseus::plan
