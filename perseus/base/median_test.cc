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

}  // namespace
}  // namespace perseus
