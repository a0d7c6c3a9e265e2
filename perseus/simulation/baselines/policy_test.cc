#include "perseus/simulation/baselines/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/planning_jobs.h"

namespace perseus::baselines {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A 1F1B iteration of two stages and two microbatches, without waiting power. The clocks are 300,
// 200 and 100 MHz. At these clocks, a forward of stage 0 takes 1, 2 and 3 ms. A forward of stage 1
// takes `heavier` times as long. A backward takes as long as a forward of its stage. Energies fall
// from clock to clock.
//
//   rank 0  F0 F1 .. B0 .. B1
//   rank 1  .. F0 B0 F1 B1
schedule::InstructionGraph TwoStages(double heavier) {
  schedule::InstructionGraph graph;
  graph.name = "1f1b";
  for (int stage = 0; stage < 2; ++stage) {
    for (const InstructionKind kind : {InstructionKind::kForward, InstructionKind::kBackward}) {
      const auto unit = static_cast<Nanoseconds>((stage == 1 ? heavier : 1) * kMillisecond);
      schedule::OptionSet set{
          .name = "stage", .kind = kind, .pp_rank = stage, .chunk = 0, .options = {}};
      set.options = {{300, {}, unit, 9}, {200, {}, 2 * unit, 5}, {100, {}, 3 * unit, 3}};
      graph.option_sets.push_back(set);
    }
    graph.pp_rank_names.push_back("rank " + std::to_string(stage));
  }
  // F0 s0, F1 s0, F0 s1, B0 s1, F1 s1, B0 s0, B1 s1, B1 s0.
  graph.instructions = {{0, 0, 0}, {0, 0, 1}, {2, 1, 0}, {3, 1, 0},
                        {2, 1, 1}, {1, 0, 0}, {3, 1, 1}, {1, 0, 1}};
  graph.pp_rank_orders = {{0, 1, 5, 7}, {2, 3, 4, 6}};
  graph.dependencies = {{0, 1, 0}, {1, 5, 0}, {5, 7, 0}, {2, 3, 0}, {3, 4, 0},
                        {4, 6, 0}, {0, 2, 0}, {1, 4, 0}, {3, 5, 0}, {6, 7, 0}};
  return graph;
}

PolicyPoints PointsOf(const std::unique_ptr<Policy>& policy, const plan::Planner& planner) {
  const Nanoseconds times[] = {planner.baseline().time};
  auto points = policy->Points(planner, times);
  EXPECT_TRUE(points) << points.error().Message();
  return *std::move(points);
}

TEST(AllMax, RunsEverythingAtMaximumFrequency) {
  const plan::Planner planner = MakePlanner(TwoStages(1), {});
  const PolicyPoints offered = PointsOf(MakeAllMax(), planner);
  ASSERT_EQ(offered.points.size(), 1U);
  EXPECT_EQ(offered.points[0].evaluation.time, 6 * kMillisecond);
  EXPECT_EQ(offered.points[0].evaluation.energy_j, 8 * 9);
}

TEST(ZeusGlobal, OffersEveryClock) {
  const plan::Planner planner = MakePlanner(TwoStages(1), {});
  const PolicyPoints offered = PointsOf(MakeZeusGlobal(), planner);
  ASSERT_EQ(offered.points.size(), 3U);
  EXPECT_EQ(offered.points[1].setting, "200 MHz");
  EXPECT_EQ(offered.points[1].evaluation.time, 12 * kMillisecond);
  EXPECT_EQ(offered.points[1].evaluation.energy_j, 8 * 5);
}

TEST(ZeusPerStage, BalancesTheForwards) {
  // Stage 1 takes at least 3 ms. Stage 0 takes as long at 100 MHz.
  const plan::Planner planner = MakePlanner(TwoStages(3), {});
  const PolicyPoints offered = PointsOf(MakeZeusPerStage(), planner);
  const auto balanced = std::ranges::find_if(offered.points, [](const OperatingPoint& point) {
    return point.setting == "forward in 0.003 s";
  });
  ASSERT_NE(balanced, offered.points.end());
  EXPECT_THAT(balanced->options, ElementsAre(2, 2, 0, 0, 0, 2, 0, 2));
}

TEST(EnvPipe, KeepsTheEnvelopeAndRaisesTheRestUntilItFits) {
  // By hand: F0 s0, all of stage 1 and B1 s0 stay at maximum frequency: 1 + 4 * 3 + 1 = 14 ms. F1
  // s0 can run from 1 to 7 ms and takes 3 ms, so it keeps its clock. B0 s0 can run from 7 to 13 ms,
  // so it keeps its clock as well.
  const plan::Planner planner = MakePlanner(TwoStages(3), {});
  const PolicyPoints offered = PointsOf(MakeEnvPipe(), planner);
  EXPECT_THAT(offered.note, IsEmpty());
  ASSERT_EQ(offered.points.size(), 1U);
  EXPECT_THAT(offered.points[0].options, ElementsAre(0, 2, 0, 0, 0, 2, 0, 0));
  EXPECT_EQ(offered.points[0].evaluation.time, 14 * kMillisecond);
}

TEST(EnvPipe, RaisesCriticalInstructions) {
  // By hand: stage 1 works from 1 to 6 ms. F1 s0 can run from 1 to 3.5 ms and takes 3 ms at 100
  // MHz, so it is raised to 200 MHz. B0 s0 can run from 3.5 to 6 ms, so it is raised as well.
  const plan::Planner planner = MakePlanner(TwoStages(1.25), {});
  const PolicyPoints offered = PointsOf(MakeEnvPipe(), planner);
  EXPECT_THAT(offered.points[0].options, ElementsAre(0, 1, 0, 0, 0, 1, 0, 0));
  EXPECT_EQ(offered.points[0].evaluation.time, 7 * kMillisecond);
}

TEST(EnvPipe, ReportsThatItWouldNotTerminate) {
  // The first stage is the heavier one, so its own instructions are critical at every clock.
  schedule::InstructionGraph graph = TwoStages(1);
  for (schedule::OptionSet& set : graph.option_sets) {
    if (set.pp_rank != 0) continue;
    for (profile::Option& option : set.options) option.time *= 10;
  }
  const PolicyPoints offered = PointsOf(MakeEnvPipe(), MakePlanner(std::move(graph), {}));
  EXPECT_THAT(offered.note, HasSubstr("would not end"));
  EXPECT_THAT(offered.points[0].options, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0));
}

TEST(PerseusPublished, NamesTheInstructionThatIsShorterThanItsUnit) {
  const plan::Planner planner = MakePlanner(TwoStages(1), {});
  const auto points = MakePerseusPublished(5 * kMillisecond)->Points(planner, {});
  ASSERT_FALSE(points);
  EXPECT_THAT(points.error().Message(), HasSubstr("takes less than the unit of 0.005 s"));
}

TEST(ChooseFor, CountsTheWaitUntilTheStragglerIsDone) {
  const plan::Planner planner = MakePlanner(TwoStages(1), {100, 0});
  OperatingPoint fast{"fast", {}, {}};
  fast.evaluation.time = 10 * kMillisecond;
  fast.evaluation.energy_j = 50;
  OperatingPoint slow{"slow", {}, {}};
  slow.evaluation.time = 20 * kMillisecond;
  slow.evaluation.energy_j = 51;
  const OperatingPoint points[] = {fast, slow};
  // 2 ranks wait for 10 ms at 100 W, which adds 2 J to the fast plan.
  EXPECT_EQ(planner.EnergyUntil(20 * kMillisecond, fast.evaluation), 52);
  EXPECT_EQ(ChooseFor(20 * kMillisecond, points, planner).setting, "slow");
  EXPECT_EQ(ChooseFor(19 * kMillisecond, points, planner).setting, "fast");
  EXPECT_EQ(ChooseFor(5 * kMillisecond, points, planner).setting, "fast");  // The least slowdown.
}

TEST(PerseusPublished, NamesTheLeastUnit) {
  const plan::Planner planner = MakePlanner(TwoStages(1), {});
  const auto points = MakePerseusPublished(10)->Points(planner, {});
  ASSERT_FALSE(points);
  // From 6 ms to 18 in at most 100,000 steps.
  EXPECT_THAT(points.error().Message(), HasSubstr("1200000 steps"));
  EXPECT_THAT(points.error().Message(), HasSubstr("`unit = 0.000121` or more"));
}

// With 1,410 microbatches, a unit of 1 ms gives fewer steps than the limit, but each step evaluates
// thousands of instructions.
TEST(PerseusPublished, RefusesAWalkThatTakesMinutes) {
  const plan::Planner planner = MakePlanner(MakeSyntheticJob({.stages = 8, .microbatches = 1410}));
  const auto points = MakePerseusPublished(kMillisecond)->Points(planner, {});
  ASSERT_FALSE(points);
  EXPECT_THAT(points.error().Message(), HasSubstr("each of 22560 instructions (choose `unit = "));
}

// No policy needs less energy than the bound. At an equal time, no policy needs less energy than
// Perseus. PerseusPublished rounds times and energies, so the test checks only the first claim for
// it.
TEST(PolicyProperty, NoPolicyBeatsTheBoundNorPerseusAtEqualTime) {
  // Without a limit on clock changes, because no other policy has one.
  const recipe::Wishes wishes{.changes = {.limit = recipe::ChangeRules::Limit::kNone}};
  const auto perseus = MakePerseus(wishes);
  int compared = 0;
  int published = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const plan::Planner planner =
        MakePlanner(RandomJob({.shape = JobShape::kPipeline, .instructions = 8}, seed),
                    {RandomBlockingPower(seed), 0});
    const auto frontier = planner.ComputeFrontier();
    ASSERT_TRUE(frontier);
    for (const auto& policy : AllPolicies(planner.baseline().time / 1000 + 1, wishes)) {
      const bool is_published = policy->name() == "PerseusPublished";
      const Nanoseconds baseline[] = {planner.baseline().time};
      const auto offered = policy->Points(planner, baseline);
      if (is_published && !offered) continue;  // There are too few options for a fit.
      ASSERT_TRUE(offered) << offered.error().Message();
      for (const OperatingPoint& point : offered->points) {
        SCOPED_TRACE(testing::Message() << policy->name() << " " << point.setting << " " << seed);
        const Nanoseconds time = point.evaluation.time;
        EXPECT_GE(point.evaluation.energy_j, frontier->BoundAt(time) * (1 - 1e-12));
        if (is_published) {
          ++published;
          continue;
        }
        const Nanoseconds times[] = {time};
        const auto ours = perseus->Points(planner, times);
        ASSERT_TRUE(ours) << ours.error().Message();
        const OperatingPoint& chosen = ChooseFor(time, ours->points, planner);
        EXPECT_LE(chosen.evaluation.time, time);
        EXPECT_LE(planner.EnergyUntil(time, chosen.evaluation),
                  point.evaluation.energy_j * (1 + 1e-12));
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 600);
  EXPECT_GT(published, 500);
}

TEST(PlanForStraggler, TakesTimeBeyondThatOfLeastEnergy) {
  const plan::Planner planner = MakePlanner(MakeSyntheticJob({}));
  const auto frontier = planner.ComputeFrontier();
  ASSERT_TRUE(frontier);
  const Nanoseconds slow_end = frontier->points.back().time;
  const Nanoseconds least = frontier->points[frontier->least_energy].time;
  ASSERT_GT(slow_end, least);
  const auto ends = planner.PlanFor(slow_end);
  const auto waits = planner.PlanForStraggler(slow_end);
  ASSERT_TRUE(ends && waits);
  EXPECT_LE(ends->evaluation.time, least);
  EXPECT_LT(planner.EnergyUntil(slow_end, waits->evaluation),
            planner.EnergyUntil(slow_end, ends->evaluation));
  EXPECT_LT(ends->evaluation.energy_j, waits->evaluation.energy_j);
}

}  // namespace
}  // namespace perseus::baselines
