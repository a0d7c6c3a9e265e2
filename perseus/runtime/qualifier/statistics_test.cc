#include "perseus/runtime/qualifier/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "perseus/base/random.h"

namespace perseus::qualifier {
namespace {

TEST(Statistics, NothingIsKnownWithoutSamples) {
  EXPECT_FALSE(MedianOf({}));
  EXPECT_FALSE(MeanOf({}));
}

TEST(Statistics, TheMedianOfSixSamplesIsBetweenTheFirstAndTheLast) {
  // The true median is below all six samples with probability 1/64, and above all with the same.
  const auto median = MedianOf({6, 1, 5, 2, 4, 3});
  ASSERT_TRUE(median);
  EXPECT_DOUBLE_EQ(median->value, 3.5);
  EXPECT_DOUBLE_EQ(median->low, 1);
  EXPECT_DOUBLE_EQ(median->high, 6);
  EXPECT_EQ(median->samples, 6);
  EXPECT_TRUE(IsEnclosed(6, 0.5));
  EXPECT_FALSE(IsEnclosed(5, 0.5));  // 2/32 is more than 5 %.
}

TEST(Statistics, The95thPercentileNeeds72Samples) {
  EXPECT_TRUE(IsEnclosed(72, 0.95));   // 0.95^72 = 0.0249.
  EXPECT_FALSE(IsEnclosed(71, 0.95));  // 0.95^71 = 0.0262.
}

TEST(Statistics, KnownRanksOfTheMedian) {
  // Tables of the sign test: for n = 20, the 6th and the 15th sample enclose the median (95.9 %).
  std::vector<double> samples;
  for (int i = 1; i <= 20; ++i) samples.push_back(i);
  const auto median = MedianOf(samples);
  EXPECT_DOUBLE_EQ(median->low, 6);
  EXPECT_DOUBLE_EQ(median->high, 15);
}

TEST(Statistics, TheMeanHasTheIntervalOfStudent) {
  const auto mean = MeanOf({1, 2, 3});
  ASSERT_TRUE(mean);
  EXPECT_DOUBLE_EQ(mean->value, 2);
  EXPECT_NEAR(mean->high - 2, 4.303 / std::sqrt(3), 1e-9);  // Standard deviation 1, 2 degrees.
  EXPECT_NEAR(2 - mean->low, 4.303 / std::sqrt(3), 1e-9);
}

// The share of 400 experiments whose interval covers the truth. With 95 %, it is below 0.92 in less
// than one of a hundred such tests; the seeds are fixed, so this one always gives the same.
TEST(Statistics, IntervalsCoverTheTruthAsOftenAsTheySay) {
  SplitMix64 random{7};
  int medians = 0, tails = 0, means = 0;
  constexpr int kExperiments = 400;
  for (int i = 0; i < kExperiments; ++i) {
    std::vector<double> skewed, normal;  // exp(N(0, 1)): median 1, 95th percentile exp(1.645).
    for (int k = 0; k < 80; ++k) skewed.push_back(std::exp(Normal(random)));
    for (int k = 0; k < 5; ++k) normal.push_back(10 + Normal(random));
    const auto median = MedianOf(skewed);
    const auto tail = QuantileOf(skewed, 0.95);
    const auto mean = MeanOf(normal);
    medians += median->low <= 1 && 1 <= median->high;
    tails += tail->low <= std::exp(1.645) && std::exp(1.645) <= tail->high;
    means += mean->low <= 10 && 10 <= mean->high;
  }
  EXPECT_GE(medians, 0.92 * kExperiments);
  EXPECT_GE(tails, 0.92 * kExperiments);
  EXPECT_GE(means, 0.92 * kExperiments);
}

}  // namespace
}  // namespace perseus::qualifier
