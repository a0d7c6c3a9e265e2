#include "perseus/planning/plan/power_shape.h"

#include <gtest/gtest.h>

namespace perseus::plan {
namespace {

// One pp_rank: 100 J in the first second, and then 3 s at the blocking power of 20 W.
Evaluation OneBurst() {
  Evaluation evaluation;
  evaluation.time = 4 * kSecond;
  evaluation.starts = {0};
  evaluation.durations = {kSecond};
  evaluation.energies_j = {100};
  return evaluation;
}

TEST(PowerShapeTest, AStepIsBetweenTheMeansOfNeighboringTimes) {
  const PowerShape shape(OneBurst(), {.blocking_power_w = 20}, 1);
  EXPECT_DOUBLE_EQ(shape.peak_w(), 100);
  EXPECT_DOUBLE_EQ(shape.LargestStepW(kSecond / 10), 80);
  EXPECT_DOUBLE_EQ(shape.LargestStepW(kSecond), 80);
  // One of two seconds is at 100 W: 60 W and 20 W.
  EXPECT_DOUBLE_EQ(shape.LargestStepW(2 * kSecond), 40);
}

// Each whole iteration has the same energy, wherever it begins.
TEST(PowerShapeTest, TheIterationRepeats) {
  const PowerShape shape(OneBurst(), {.blocking_power_w = 20}, 1);
  EXPECT_NEAR(shape.LargestStepW(4 * kSecond), 0, 1e-9);
  EXPECT_NEAR(shape.LargestStepW(40 * kSecond), 0, 1e-9);
  EXPECT_NEAR(shape.LargestStepW(6 * kSecond), 80 / 6.0, 1e-9);
}

// While one pp_rank computes, the other one waits. So the power of both never changes.
TEST(PowerShapeTest, PpRanksAddUp) {
  Evaluation evaluation = OneBurst();
  evaluation.time = 2 * kSecond;
  evaluation.starts = {0, kSecond};
  evaluation.durations = {kSecond, kSecond};
  evaluation.energies_j = {100, 100};
  const PowerShape shape(evaluation, {.blocking_power_w = 20}, 2);
  EXPECT_DOUBLE_EQ(shape.peak_w(), 120);
  EXPECT_NEAR(shape.LargestStepW(kSecond / 10), 0, 1e-9);
}

TEST(PowerShapeTest, AnInstructionWithoutTimeHasNoPower) {
  Evaluation evaluation = OneBurst();
  evaluation.starts.push_back(kSecond);
  evaluation.durations.push_back(0);
  evaluation.energies_j.push_back(5);
  EXPECT_DOUBLE_EQ(PowerShape(evaluation, {.blocking_power_w = 20}, 1).peak_w(), 100);
}

}  // namespace
}  // namespace perseus::plan
