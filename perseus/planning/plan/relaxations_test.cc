#include "perseus/planning/plan/relaxations.h"

#include <gtest/gtest.h>

namespace perseus::plan {
namespace {

frontier::Solution SolutionOfPrice(Microwatts price) {
  frontier::Solution solution;
  solution.price = price;
  return solution;
}

TEST(RelaxationsTest, FindsTheSolutionOfTheSameDeadlineAndPriceFloor) {
  Relaxations relaxations;
  relaxations.Remember(10, 1, SolutionOfPrice(7));
  relaxations.Remember(10, 2, SolutionOfPrice(8));
  EXPECT_EQ(relaxations.Find(10, 1)->price, 7);
  EXPECT_EQ(relaxations.Find(10, 2)->price, 8);
  EXPECT_FALSE(relaxations.Find(11, 1).has_value());
}

TEST(RelaxationsTest, ForgetsTheOldest) {
  Relaxations relaxations;
  constexpr int kMany = 1'000;
  for (int i = 0; i < kMany; ++i) relaxations.Remember(i, 0, SolutionOfPrice(i));
  EXPECT_FALSE(relaxations.Find(0, 0).has_value());
  EXPECT_EQ(relaxations.Find(kMany - 1, 0)->price, kMany - 1);
}

}  // namespace
}  // namespace perseus::plan
