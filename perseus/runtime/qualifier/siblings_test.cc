#include "perseus/runtime/qualifier/qualify_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perseus::qualifier {
namespace {

using hardware_facts::Estimate;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::optional<Estimate> KnownTo1W(double value) { return Estimate{value, value - 1, value + 1, 5}; }

TEST(Siblings, GpusThatAgreeGiveTheirMedian) {
  Siblings siblings({"a", "b", "c"});
  EXPECT_EQ(siblings.Combine("power", Siblings::Unit::kWatts,
                             {KnownTo1W(80), KnownTo1W(84), KnownTo1W(81)}),
            (Estimate{81, 79, 85, 15}));
  EXPECT_THAT(siblings.Differences(), IsEmpty());
}

TEST(Siblings, AGpuThatDiffersIsNamedOnceAndLeftOut) {
  Siblings siblings({"a", "b", "c"});
  EXPECT_EQ(siblings.Combine("power", Siblings::Unit::kWatts,
                             {KnownTo1W(80), KnownTo1W(120), KnownTo1W(81)}),
            (Estimate{80.5, 79, 82, 10}));
  const Estimate bias{0.001, 0, 0.002, 3}, other{0.05, 0.04, 0.06, 3};
  EXPECT_EQ(siblings.Combine("bias", Siblings::Unit::kFraction, {bias, other, bias}),
            (Estimate{0.001, 0, 0.002, 6}));
  EXPECT_THAT(siblings.Differences(),
              ElementsAre("b differs from its siblings: its power is 120 W, and the median of 3 "
                          "GPUs is 81 W (and 1 other value)."));
}

TEST(Siblings, TwoGpusDifferFromEachOther) {
  Siblings siblings({"a", "b"});
  EXPECT_EQ(
      siblings.Combine("period", Siblings::Unit::kMilliseconds, {KnownTo1W(20), KnownTo1W(100)}),
      (Estimate{60, 19, 101, 10}));
  EXPECT_THAT(siblings.Differences(),
              ElementsAre("a and b differ: the period is 20 ms on the one and 100 ms on the "
                          "other."));
}

TEST(Siblings, AValueThatOneGpuLacksIsUnknown) {
  Siblings siblings({"a", "b"});
  EXPECT_EQ(siblings.Combine("power", Siblings::Unit::kWatts, {KnownTo1W(20), std::nullopt}),
            std::nullopt);
  EXPECT_EQ(Siblings({}).Combine("power", Siblings::Unit::kWatts, {}), std::nullopt);
}

}  // namespace
}  // namespace perseus::qualifier
