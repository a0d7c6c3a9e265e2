#include "perseus/base/round_step.h"

#include <gtest/gtest.h>

namespace perseus {
namespace {

TEST(RoundStep, IsTheSmallestThatIsLargeEnough) {
  const struct {
    double least, step;
  } rows[] = {{1, 1}, {1.01, 2}, {2, 2}, {3, 5}, {6, 10}, {70, 100}, {0.04, 0.05}, {0.006, 0.01}};
  for (const auto& [least, step] : rows) {
    EXPECT_DOUBLE_EQ(RoundStepFrom(least).value(), step) << least;
  }
  EXPECT_DOUBLE_EQ(NextRoundStep({5, -2}).value(), 0.1);
}

TEST(RoundStep, LabelsHaveTheDecimalsOfTheStep) {
  EXPECT_EQ((RoundStep{2, 2}).Format(1200), "1200");
  EXPECT_EQ((RoundStep{5, -1}).Format(1.5), "1.5");
  EXPECT_EQ((RoundStep{2, -2}).Format(3 * 0.02), "0.06");
  EXPECT_EQ((RoundStep{1, -1}).Format(-0.0), "0.0");
  EXPECT_EQ((RoundStep{1, -1}).Format(-0.1), "-0.1");
}

}  // namespace
}  // namespace perseus
