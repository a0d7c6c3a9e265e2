// Tests of plans with a switch latency: by the exact evaluation, they meet the deadline and save
// energy.
#include "perseus/planning/plan/switching.h"

#include <gtest/gtest.h>

#include "tests/support/planning_jobs.h"
#include "tests/support/seeds.h"

namespace perseus::plan {
namespace {

struct Latency {
  std::string_view name;
  Nanoseconds value;
};

class SwitchingTest : public ::testing::TestWithParam<Latency> {
 protected:
  const Planner planner_ =
      MakePlanner(MakeSyntheticJob({}), {kSyntheticBlockingPowerW, GetParam().value});
  const Planner instant_ = MakePlanner(MakeSyntheticJob({}));
};

TEST_P(SwitchingTest, PlansAreInTimeAndSaveEnergy) {
  const Evaluation& baseline = planner_.baseline();
  EXPECT_EQ(baseline.switches, 0);
  EXPECT_EQ(baseline.time, instant_.baseline().time);
  for (const int slowdown_percent : {0, 3, 20}) {
    SCOPED_TRACE(slowdown_percent);
    const Nanoseconds deadline = baseline.time * (100 + slowdown_percent) / 100;
    const Result<Plan> plan = planner_.PlanFor(deadline);
    ASSERT_TRUE(plan) << plan.error().Message();
    const Evaluation again = Evaluator(planner_.graph(), planner_.model()).Evaluate(plan->options);
    EXPECT_EQ(again.time, plan->evaluation.time);
    EXPECT_EQ(again.energy_j, plan->evaluation.energy_j);
    EXPECT_EQ(again.switches, plan->evaluation.switches);
    EXPECT_LE(again.time, deadline);
    EXPECT_LE(again.energy_j, baseline.energy_j);
    EXPECT_GE(again.energy_j, plan->lower_bound_j);

    const Result<Plan> instant = instant_.PlanFor(deadline);
    ASSERT_TRUE(instant);
    EXPECT_NEAR(plan->lower_bound_j, instant->lower_bound_j, 1e-9 * plan->lower_bound_j);
  }
}

TEST_P(SwitchingTest, FailsBelowTheLeastTime) {
  const Result<Plan> plan = planner_.PlanFor(planner_.least_time() - 1);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().kind, ErrorKind::kUnreachable);
}

INSTANTIATE_TEST_SUITE_P(Latencies, SwitchingTest,
                         ::testing::Values(Latency{"half_a_millisecond", 500 * kMicrosecond},
                                           Latency{"two_milliseconds", 2'000 * kMicrosecond},
                                           Latency{"ten_milliseconds", 10'000 * kMicrosecond},
                                           Latency{"sixty_milliseconds", 60'000 * kMicrosecond}),
                         [](const auto& test) { return std::string(test.param.name); });

// The jobs are so small that the test can try every combination, with the latency.
TEST(SwitchingProperty, NoCombinationBeatsTheBound) {
  int plans = 0;
  int optimal = 0;
  for (std::uint64_t seed = 0; seed < Seeds(150); ++seed) {
    SCOPED_TRACE(seed);
    const auto shape = seed % 2 == 0 ? JobShape::kPipeline : JobShape::kAnyOrder;
    const ExecutionModel model{RandomBlockingPower(seed),
                               static_cast<Nanoseconds>(1 + seed % 4) * 700 * kMicrosecond};
    const Result<Planner> planner =
        Planner::Create(RandomJob({.shape = shape, .instructions = 6, .options = 3}, seed), model);
    ASSERT_TRUE(planner) << planner.error().Message();
    for (const int slowdown_percent : {0, 15, 60}) {
      const Nanoseconds deadline = planner->baseline().time / 100 * (100 + slowdown_percent) + 100;
      const auto best = SearchAll(planner->graph(), model, deadline);
      const Result<Plan> plan = planner->PlanFor(deadline);
      ASSERT_TRUE(best);
      ASSERT_TRUE(plan) << plan.error().Message();
      EXPECT_LE(plan->evaluation.time, deadline);
      EXPECT_GE(plan->evaluation.energy_j, best->energy_j * (1 - 1e-12));
      EXPECT_LE(plan->evaluation.energy_j, planner->baseline().energy_j * (1 + 1e-12));
      EXPECT_GE(best->energy_j, plan->lower_bound_j * (1 - 1e-9));
      ++plans;
      if (plan->evaluation.energy_j <= best->energy_j * (1 + 1e-9)) ++optimal;
    }
  }
  // The local search usually finds the best combination.
  EXPECT_GE(optimal, plans / 2);
  RecordProperty("optimal", optimal);
  RecordProperty("plans", plans);
}

}  // namespace
}  // namespace perseus::plan
