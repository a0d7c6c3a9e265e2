// Tests of ChoiceSearch: it is deterministic, a later call continues the search, and more effort is
// never worse.
#include "perseus/planning/plan/search/choice_search.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "perseus/base/index.h"
#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/search/choices.h"
#include "tests/support/planning_jobs.h"
#include "tests/support/seeds.h"

namespace perseus::plan {
namespace {

class ChoiceSearchTest : public ::testing::Test {
 protected:
  frontier::Solution Solve(int tenths_percent) const {
    const Nanoseconds time = planner_.baseline().time;
    return *frontier::SolveDeadline(planner_.network(), time + time / 1000 * tenths_percent);
  }
  ChoiceSearch Search(const frontier::Solution& solution) const {
    return {graph_, planner_.network(), solution};
  }
  double Energy(const Choices& choices) const { return graph_.EffectiveEnergy(choices); }

  const Planner planner_ = MakePlanner(MakeSyntheticJob({}));
  const ChoiceGraph graph_{planner_.graph(), kSyntheticBlockingPowerW};
};

TEST_F(ChoiceSearchTest, MoreEffortIsNeverWorseAndNeverLate) {
  for (const int slowdown : {0, 13, 100}) {
    SCOPED_TRACE(slowdown);
    const frontier::Solution solution = Solve(slowdown);
    const Windows windows = WindowsOf(planner_.network(), solution);
    double last_j = Energy(DiffuseRounding(graph_, windows, TimeDirection::kForward));
    const double rounded_j = last_j;
    for (int effort = kFirstLook; effort <= 3; ++effort) {
      const Result<Choices> choices = Search(solution).Spend({.effort = effort});
      ASSERT_TRUE(choices);
      EXPECT_LE(Energy(*choices), last_j) << effort;
      last_j = Energy(*choices);
      const std::vector<Nanoseconds> starts = EarliestStarts(graph_, *choices);
      for (int i = 0; i < graph_.instructions(); ++i) {
        const auto at = static_cast<std::size_t>(i);
        const auto choice = static_cast<std::size_t>((*choices)[at]);
        EXPECT_LE(starts[at] + graph_.candidates(i)[choice].time, windows.length);
      }
    }
    EXPECT_LT(last_j, rounded_j);
  }
}

// A search that continues has the same result as a search that gets the whole effort at once.
TEST_F(ChoiceSearchTest, GoesOnAsIfItHadNotEnded) {
  const frontier::Solution solution = Solve(20);
  ChoiceSearch steps = Search(solution);
  for (const int effort : {kFirstLook, 1, 2}) {
    EXPECT_EQ(*steps.Spend({.effort = effort}), *Search(solution).Spend({.effort = effort}));
  }
  const Choices best = *steps.Spend({.effort = 2});
  EXPECT_EQ(*steps.Spend({.effort = kFirstLook}), best);
}

TEST_F(ChoiceSearchTest, AFinishKeepsTheFirstLook) {
  const frontier::Solution solution = Solve(20);
  std::stop_source finish;
  finish.request_stop();
  EXPECT_EQ(*Search(solution).Spend({.effort = 5, .finish = finish.get_token()}),
            *Search(solution).Spend({.effort = kFirstLook}));
}

TEST(ChoiceSearch, AcceptsAGraphOfFixedInstructions) {
  schedule::OptionSet fixed;
  fixed.name = "fixed";
  fixed.kind = InstructionKind::kOptimizer;
  fixed.options = {{0, {}, 10, 1.0, 1}};
  const Planner planner = MakePlanner(MakeChain({fixed}), {});
  const auto plan = planner.PlanFor(10);
  ASSERT_TRUE(plan) << plan.error().Message();
  EXPECT_EQ(plan->evaluation.energy_j, 1.0);
  EXPECT_EQ(plan->gap(), 0);
}

Nanoseconds Between(const Planner& planner, std::uint64_t tenths) {
  const Nanoseconds least = planner.least_time();
  return least + (planner.SlowestTime() - least) * static_cast<Nanoseconds>(tenths) / 10;
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

// Suppose that tilting or sharpening broke the convexity of a curve. Then the solver would find no
// optimum, or a schedule in which an instruction is faster than its fastest option.
TEST(SharpenedWindows, AreSchedulesOfThatLength) {
  for (std::uint64_t seed = 0; seed < Seeds(500); ++seed) {
    SCOPED_TRACE(seed);
    const auto shape = seed % 2 == 0 ? JobShape::kPipeline : JobShape::kAnyOrder;
    const Planner planner = MakePlanner(RandomJob({.shape = shape, .instructions = 24}, seed),
                                        {RandomBlockingPower(seed), 0});
    const Nanoseconds length = Between(planner, seed % 11);
    const Tilt tilt{seed % 3 == 0 ? TiltBy::kInstruction : TiltBy::kMicrobatch,
                    seed % 5 == 0 ? 0.9 : 0.1, seed};
    const auto rounds = static_cast<int>(seed % 6);
    const auto optimum = frontier::SolveDeadline(planner.network(), length);
    ASSERT_TRUE(optimum) << optimum.error().Message();
    const Result<Windows> windows =
        SharpenedWindows(planner.network(), planner.graph(), *optimum, tilt, rounds);
    ASSERT_TRUE(windows) << windows.error().Message();
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
    const Planner planner = MakePlanner(
        RandomJob({.shape = JobShape::kPipeline, .instructions = 40, .options = 6}, seed),
        {RandomBlockingPower(seed), 0});
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
