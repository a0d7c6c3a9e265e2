#include "perseus/runtime/qualifier/qualify_run.h"

#include <gmock/gmock.h>

namespace perseus::qualifier {
namespace {

using hardware_facts::Estimate;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::optional<Estimate> KnownTo1W(double value) { return Estimate{value, value - 1, value + 1, 5}; }

TEST(Siblings, GpusThatAgreeGiveTheirMedian) {
  Siblings siblings({"a", "b", "c"});
  EXPECT_EQ(siblings.Combine("power", "W", {KnownTo1W(80), KnownTo1W(84), KnownTo1W(81)}),
            (Estimate{81, 79, 85, 15}));
  EXPECT_THAT(siblings.differences(), IsEmpty());
}

TEST(Siblings, AGpuThatDiffersIsNamedOnceAndLeftOut) {
  Siblings siblings({"a", "b", "c"});
  EXPECT_EQ(siblings.Combine("power", "W", {KnownTo1W(80), KnownTo1W(120), KnownTo1W(81)}),
            (Estimate{80.5, 79, 82, 10}));
  const Estimate bias{0.001, 0, 0.002, 3}, other{0.05, 0.04, 0.06, 3};
  EXPECT_EQ(siblings.Combine("bias", "%", {bias, other, bias}), (Estimate{0.001, 0, 0.002, 6}));
  EXPECT_THAT(siblings.differences(),
              ElementsAre("b differs from its siblings: its power is 120 W, and the median of 3 "
                          "GPUs is 81 W."));
}

// Returns how many of the GPUs with these powers differ. Each power is known to 1 W.
std::size_t Different(const std::vector<double>& powers_w) {
  std::vector<std::optional<Estimate>> estimates;
  for (const double power_w : powers_w) estimates.push_back(KnownTo1W(power_w));
  Siblings siblings({"a", "b", "c", "d", "e"});
  EXPECT_TRUE(siblings.Combine("power", "W", estimates));
  return siblings.differences().size();
}

TEST(Siblings, AGpuDiffersIfItsIntervalIsTooFarFromTheMedian) {
  // The median is 81 and MAD is 1. The bound is 10 % of 81, because 5 MAD are less. The interval of
  // 91 begins at 90, which is 9 from the median, and 9 > 8.1. The interval of 90 begins 8 from the
  // median.
  EXPECT_EQ(Different({80, 81, 82, 80, 90}), 0);
  EXPECT_EQ(Different({80, 81, 82, 80, 91}), 1);
  // Median 80, MAD 10: the bound is 50.
  EXPECT_EQ(Different({70, 80, 90, 60, 120}), 0);
  EXPECT_EQ(Different({70, 80, 90, 60, 132}), 1);
  // Less than half of the GPUs differ.
  EXPECT_EQ(Different({80, 80, 80, 160, 20}), 2);
  EXPECT_EQ(Different({80, 80, 160, 160}), 0);
  EXPECT_EQ(Different({80, 89}), 0);
}

TEST(Siblings, AnUncertainValueAndASmallFractionDoNotDiffer) {
  Siblings siblings({"a", "b", "c"});
  const Estimate wide{200, 85, 300, 2};
  EXPECT_TRUE(siblings.Combine("power", "W", {KnownTo1W(80), KnownTo1W(81), wide}));
  const Estimate first{0.001, 0.001, 0.001, 5}, second{0.002, 0.002, 0.002, 5},
      third{0.009, 0.009, 0.009, 5};
  EXPECT_TRUE(siblings.Combine("bias", "%", {first, second, third}));
  EXPECT_THAT(siblings.differences(), IsEmpty());
}

TEST(Siblings, TwoGpusDifferFromEachOther) {
  Siblings siblings({"a", "b"});
  EXPECT_EQ(siblings.Combine("period", "ms", {KnownTo1W(20), KnownTo1W(100)}),
            (Estimate{60, 19, 101, 10}));
  EXPECT_THAT(siblings.differences(),
              ElementsAre("a and b differ: the period is 20 ms on the one and 100 ms on the "
                          "other."));
}

TEST(Siblings, AValueThatOneGpuLacksIsUnknown) {
  Siblings siblings({"a", "b"});
  EXPECT_EQ(siblings.Combine("power", "W", {KnownTo1W(20), std::nullopt}), std::nullopt);
  EXPECT_EQ(Siblings({}).Combine("power", "W", {}), std::nullopt);
}

}  // namespace
}  // namespace perseus::qualifier
