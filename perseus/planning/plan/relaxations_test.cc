#include "perseus/planning/plan/relaxations.h"

#include <gtest/gtest.h>

#include "perseus/base/stopped.h"

namespace perseus::plan {
namespace {

class RelaxationsTest : public testing::Test {
 protected:
  Microwatts Get(Nanoseconds deadline, Microwatts price_floor) {
    const auto solution =
        relaxations_.Get(deadline, price_floor, [&]() -> Result<frontier::Solution> {
          ++solved_;
          frontier::Solution made;
          made.price = Microwatts(100 * deadline) + price_floor;
          return made;
        });
    return solution->price;
  }

  Relaxations relaxations_;
  int solved_ = 0;
};

TEST_F(RelaxationsTest, EachDeadlineAndPriceFloorIsSolvedOnce) {
  for (int round = 0; round < 2; ++round) {
    for (int deadline = 1; deadline <= 30; ++deadline) {
      EXPECT_EQ(Get(deadline, 7), 100 * deadline + 7);
    }
  }
  EXPECT_EQ(solved_, 30);
  EXPECT_EQ(Get(1, 8), 108);
  EXPECT_EQ(solved_, 31);
}

TEST_F(RelaxationsTest, TheOldestAreForgotten) {
  constexpr int kMany = 1'000;
  for (int i = 0; i < kMany; ++i) Get(i, 0);
  EXPECT_EQ(Get(kMany - 1, 0), 100 * (kMany - 1));
  EXPECT_EQ(solved_, kMany);
  EXPECT_EQ(Get(0, 0), 0);
  EXPECT_EQ(solved_, kMany + 1);
}

TEST_F(RelaxationsTest, AnErrorIsNotRemembered) {
  EXPECT_FALSE(relaxations_.Get(5, 0, [] { return Result<frontier::Solution>(FailAsStopped()); }));
  EXPECT_EQ(Get(5, 0), 500);
}

}  // namespace
}  // namespace perseus::plan
