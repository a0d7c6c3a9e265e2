#include "perseus/base/median.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace perseus
