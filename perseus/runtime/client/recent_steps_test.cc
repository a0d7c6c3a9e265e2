#include "perseus/runtime/client/recent_steps.h"

#include <gtest/gtest.h>

namespace perseus::client {
namespace {

// Steps take 2 s, of which the last 0.5 s are no work of the rank.
protocol::RanStep StepAt(std::int64_t number, bool on_plan = false) {
  protocol::RanStep step;
  step.step = number;
  step.has_plan = step.on_plan = on_plan;
  step.begin = 2 * number * kSecond;
  step.end = step.begin + 3 * kSecond / 2;
  return step;
}

EnergyReading ReadingAt(Nanoseconds at, double energy_j) {
  return {at - 5 * kMillisecond, at + 5 * kMillisecond, energy_j};
}

TEST(RecentStepsTest, KnowsNothingBeforeTheFirstSteps) {
  RecentSteps steps;
  steps.Add(ReadingAt(0, 1000));
  steps.Add(ReadingAt(kSecond, 1100));
  EXPECT_EQ(steps.Read().steps, 0);
  EXPECT_EQ(steps.Read().step_time_s, 0);
  EXPECT_EQ(steps.Read().power_w, 0);
  steps.Add(StepAt(0));
  EXPECT_EQ(steps.Read().steps, 1);
  EXPECT_EQ(steps.Read().step_time_s, 0);
}

TEST(RecentStepsTest, TimeAndPowerAreThoseOfTheLastHalfMinute) {
  RecentSteps steps;
  double energy_j = 1000;
  for (int number = 0; number < 40; ++number) {
    steps.Add(StepAt(number, number >= 30));
    const double power_w = number < 20 ? 300 : 200;
    for (int i = 0; i < 2; ++i) {
      steps.Add(ReadingAt((2 * number + i) * kSecond + kMillisecond, energy_j));
      energy_j += power_w;
    }
  }
  EXPECT_EQ(steps.Read().steps, 40);
  EXPECT_EQ(steps.Read().steps_on_plan, 10);
  EXPECT_DOUBLE_EQ(steps.Read().step_time_s, 2);
  EXPECT_DOUBLE_EQ(steps.Read().power_w, 200);
  EXPECT_DOUBLE_EQ(steps.Read().energy_j, 40 * 300 + 39 * 200);
}

TEST(RecentStepsTest, AnEvaluationAfterTheStepsDoesNotCount) {
  RecentSteps steps;
  for (int number = 0; number < 4; ++number) steps.Add(StepAt(number));
  for (int second = 0; second < 30; ++second) {
    steps.Add(ReadingAt(second * kSecond, second < 8 ? 100.0 * second : 800 + 50.0 * second));
  }
  EXPECT_DOUBLE_EQ(steps.Read().power_w, 100);
  // The step after the evaluation took longer than all others.
  steps.Add(StepAt(4));
  EXPECT_DOUBLE_EQ(steps.Read().step_time_s, 2);
}

TEST(RecentStepsTest, LongStepsCountBeyondTheWindow) {
  RecentSteps steps;
  for (int number = 0; number < 4; ++number) {
    protocol::RanStep step;
    step.step = number;
    step.begin = number * 60 * kSecond;
    step.end = step.begin + 60 * kSecond;
    steps.Add(step);
    steps.Add(ReadingAt(step.end - kSecond, 6000.0 * number));
  }
  EXPECT_DOUBLE_EQ(steps.Read().step_time_s, 60);
  EXPECT_DOUBLE_EQ(steps.Read().power_w, 100);
}

TEST(RecentStepsTest, ACounterThatFallsBeginsAnotherCount) {
  RecentSteps steps;
  steps.Add(StepAt(0));
  steps.Add(ReadingAt(kSecond, 100));
  steps.Add(ReadingAt(2 * kSecond, 200));
  steps.Add(StepAt(1));
  steps.Add(StepAt(2));
  steps.Add(ReadingAt(3 * kSecond, 10));
  EXPECT_EQ(steps.Read().power_w, 0);
  steps.Add(ReadingAt(4 * kSecond, 60));
  EXPECT_DOUBLE_EQ(steps.Read().power_w, 50);
  EXPECT_DOUBLE_EQ(steps.Read().energy_j, 150);
}

TEST(RecentStepsTest, ShortStepsHaveALimit) {
  RecentSteps steps;
  protocol::RanStep step;
  for (step.step = 0; step.step < 10'000; ++step.step, step.begin += kMillisecond) {
    step.end = step.begin + kMillisecond;
    steps.Add(step);
  }
  EXPECT_EQ(steps.Read().steps, 10'000);
  EXPECT_DOUBLE_EQ(steps.Read().step_time_s, 0.001);
}

}  // namespace
}  // namespace perseus::client
