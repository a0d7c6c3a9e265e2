#include "perseus/cluster/telemetry/plan_promise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perseus::telemetry {
namespace {

using ::testing::HasSubstr;

// Returns an assignment of two pipelines of 3 s and 1000 J. 0.5 s of the 3 s come after the last
// instruction.
store::PlannedAssignment Assignment() {
  store::PlannedAssignment assignment;
  assignment.pipelines = {{"p-1", 3, 1000}, {"p-1", 3, 1000}};
  assignment.time_s = 3;
  assignment.tail_s = 0.5;
  return assignment;
}
MeasuredStep Step(double time_s, double busy_0, double busy_1, double energy_j = 1000) {
  return {.time_s = time_s, .pipelines = {{0, {busy_0, energy_j}}, {1, {busy_1, energy_j}}}};
}

TEST(PlanPromise, ComparesMedians) {
  std::vector<MeasuredStep> steps(8, Step(3.03, 2.5, 2.6, 1100));
  steps.push_back(Step(30, 20, 20, 9000));  // One bad step changes nothing.
  const auto promise = ComparePromise(Assignment(), steps);
  ASSERT_TRUE(promise);
  EXPECT_EQ(promise->steps, 9);
  EXPECT_DOUBLE_EQ(promise->time_ratio(), 1.01);
  EXPECT_DOUBLE_EQ(promise->pipelines.at(0).time_ratio, 1);
  EXPECT_DOUBLE_EQ(promise->pipelines.at(1).time_ratio, 1.04);
  EXPECT_DOUBLE_EQ(*promise->promised_j, 2000);
  EXPECT_DOUBLE_EQ(*promise->measured_j, 2200);
}

TEST(PlanPromise, NeedsStepsAndPlans) {
  EXPECT_FALSE(ComparePromise(Assignment(), std::vector<MeasuredStep>(4, Step(3, 2.5, 2.5))));
  EXPECT_FALSE(ComparePromise({}, std::vector<MeasuredStep>(8, Step(3, 2.5, 2.5))));
}

TEST(PlanPromise, WithoutAnEnergyOnlyTimesAreCompared) {
  std::vector<MeasuredStep> steps(8, Step(3, 2.5, 2.5));
  for (MeasuredStep& step : steps) step.pipelines[1].energy_j.reset();
  const auto promise = ComparePromise(Assignment(), steps);
  ASSERT_TRUE(promise);
  EXPECT_FALSE(promise->promised_j);
  EXPECT_FALSE(promise->measured_j);
  EXPECT_TRUE(promise->pipelines.at(0).energy_ratio);
  EXPECT_FALSE(promise->pipelines.at(1).energy_ratio);
}

TEST(PlanPromise, SaysWhy) {
  const auto explain = [](const MeasuredStep& step) {
    return ExplainPromise(*ComparePromise(Assignment(), std::vector<MeasuredStep>(8, step)), 0.01);
  };
  EXPECT_EQ(explain(Step(3, 2.5, 2.5)), "");
  EXPECT_EQ(explain(Step(2.9, 2.4, 2.4, 900)), "");
  EXPECT_THAT(explain(Step(3.3, 2.8, 2.8)),
              HasSubstr("10.00 % longer than planned: all pipelines"));
  EXPECT_THAT(explain(Step(3.3, 2.5, 2.8)), HasSubstr("only pipeline 1 does"));
  EXPECT_THAT(explain(Step(3.3, 2.5, 2.5)), HasSubstr("all-reduce"));
  EXPECT_THAT(explain(Step(3, 2.5, 2.5, 1200)), HasSubstr("20.00 % more energy than planned"));
  MeasuredStep limited = Step(3.3, 2.8, 2.5);
  limited.limited_ranks = 4;
  EXPECT_THAT(explain(limited), HasSubstr("limits the clocks of 4 ranks"));
  MeasuredStep unset = Step(3, 2.5, 2.5, 1200);
  unset.ranks_without_clocks = 8;
  EXPECT_THAT(explain(unset), HasSubstr("20.00 % more energy than planned: 8 ranks set no clocks"));
}

}  // namespace
}  // namespace perseus::telemetry
