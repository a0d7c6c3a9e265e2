#include "perseus/runtime/profiler/energy_curve.h"

#include <gtest/gtest.h>

namespace perseus::profiler {
namespace {

TEST(EnergyCurve, InterpolatesBetweenTheMiddlesOfReadings) {
  EnergyCurve curve;
  curve.Add(90, 110, 1000);  // The moment is 100.
  curve.Add(190, 210, 1030);
  curve.Add(290, 310, 1130);
  EXPECT_EQ(curve.At(100), 1000);
  EXPECT_EQ(curve.At(150), 1015);
  EXPECT_EQ(curve.At(300), 1130);
  EXPECT_EQ(curve.Between(150, 250), 65);
  EXPECT_FALSE(curve.At(99));
  EXPECT_FALSE(curve.At(301));
  EXPECT_FALSE(curve.Between(150, 301));
}

TEST(EnergyCurve, BeginsAgainWithACounterThatWasReset) {
  EnergyCurve curve;
  curve.Add(0, 0, 1000);
  curve.Add(100, 100, 1010);
  curve.Add(200, 200, 5);
  curve.Add(300, 300, 15);
  EXPECT_FALSE(curve.At(150));
  EXPECT_EQ(curve.At(250), 10);
}

TEST(EnergyCurve, ForgetsReadingsThatAreNoLongerNeeded) {
  EnergyCurve curve;
  for (int i = 0; i < 10; ++i) curve.Add(100 * i, 100 * i, 10 * i);
  curve.ForgetBefore(450);
  EXPECT_EQ(curve.At(450), 45);
  EXPECT_FALSE(curve.At(350));
  EXPECT_EQ(curve.At(900), 90);
}

}  // namespace
}  // namespace perseus::profiler
