#include "perseus/base/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace perseus {
namespace {

TEST(Median, IsTheMiddleValueOrTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(Median({7}), 7);
  EXPECT_EQ(Median({9, -1, 2}), 2);
  EXPECT_EQ(Median({8, 1, 2, 4}), 3);
  EXPECT_EQ(Median({5, 5, 5, 5}), 5);
}

TEST(LowerMedian, IsTheMiddleValueOrTheLowerOneOfTheMiddleTwo) {
  EXPECT_EQ(LowerMedian({7}), 7);
  EXPECT_EQ(LowerMedian({9, -1, 2}), 2);
  EXPECT_EQ(LowerMedian({8, 1, 2, 4}), 2);
}

TEST(NearestTo, IsTheFirstOfTheNearestValues) {
  const std::vector<int> values = {900, 1000, 1200};
  EXPECT_EQ(NearestTo(values, 0), 900);
  EXPECT_EQ(NearestTo(values, 950.1), 1000);
  EXPECT_EQ(NearestTo(values, 1100), 1000);
  EXPECT_EQ(NearestTo(values, 9000), 1200);
}

TEST(MedianDeviation, IsTheMedianOfTheDistances) {
  const std::vector<double> values = {1, 2, 3, 4, 100};
  EXPECT_EQ(MedianDeviation(values, 3), 1);
  EXPECT_EQ(MedianDeviation(values, 2), 1);
}

TEST(StandardDeviation, IsThatOfTheDistribution) {
  EXPECT_DOUBLE_EQ(StandardDeviation(std::vector<double>{1, 2, 3}), 1);
  EXPECT_EQ(StandardDeviation(std::vector<double>{7}), 0);
}

// Values of a table of Student's t.
TEST(StudentHalfWidth, HasEveryNumberOfDegrees) {
  EXPECT_TRUE(std::isinf(StudentHalfWidth(0)));
  EXPECT_NEAR(StudentHalfWidth(1), 12.706, 5e-4);
  EXPECT_NEAR(StudentHalfWidth(30), 2.042, 5e-4);
  EXPECT_NEAR(StudentHalfWidth(120), 1.980, 5e-4);
}

}  // namespace
}  // namespace perseus
