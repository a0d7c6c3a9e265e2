#include "perseus/runtime/qualifier/estimates.h"

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
  EXPECT_NEAR(mean->high - 2, 4.302653 / std::sqrt(3), 1e-6);  // Standard deviation 1, 2 degrees.
  EXPECT_NEAR(2 - mean->low, 4.302653 / std::sqrt(3), 1e-6);
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

struct Counter {
  double period_ms = 100, resolution_j = 0.5, bias = 0.03, power_noise = 0;
};

std::vector<device::Telemetry> ReadingsOf(const Counter& counter, double power_w) {
  SplitMix64 random{11};
  std::vector<device::Telemetry> readings;
  for (Nanoseconds at = 0; at < 10 * kSecond; at += 2 * kMillisecond) {
    const double tick_s =
        std::floor(static_cast<double>(at) / 1e6 / counter.period_ms) * counter.period_ms / 1000;
    const double exact_j = power_w * (1 + counter.bias) * tick_s;
    const double shown_j = std::floor(exact_j / counter.resolution_j) * counter.resolution_j;
    device::Telemetry& reading = readings.emplace_back();
    reading.at = at;
    reading.power_w = power_w * (1 + counter.power_noise * Normal(random));
    reading.energy_j = shown_j;
  }
  return readings;
}

TEST(EnergyCounter, FindsWhatItWasGiven) {
  const Counter counter;
  const auto found = ExamineCounter(ReadingsOf(counter, 307.7));
  ASSERT_TRUE(found);
  EXPECT_LE(found->period_ms.low, 100);
  EXPECT_GE(found->period_ms.high, 100);
  EXPECT_DOUBLE_EQ(found->resolution_j, 0.5);
  EXPECT_LE(found->bias.low, 0.03);
  EXPECT_GE(found->bias.high, 0.03);
  EXPECT_LT(found->bias.high - found->bias.low, 0.01);
}

TEST(EnergyCounter, NoisyPowerReadingsWidenTheInterval) {
  const auto found = ExamineCounter(ReadingsOf({.power_noise = 0.05}, 301));
  ASSERT_TRUE(found);
  EXPECT_LE(found->bias.low, 0.03);
  EXPECT_GE(found->bias.high, 0.03);
}

TEST(EnergyCounter, SaysNothingAboutACounterThatStands) {
  EXPECT_FALSE(ExamineCounter(ReadingsOf({.period_ms = 3000}, 301)));
  EXPECT_FALSE(ExamineCounter({}));
}

TEST(EnergyCounter, PowerByCounter) {
  const auto readings = ReadingsOf({.resolution_j = 0.001, .bias = 0}, 300);
  const auto power = PowerByCounter(readings, 9);
  ASSERT_TRUE(power);
  EXPECT_LE(power->low, 300);
  EXPECT_GE(power->high, 300);
  EXPECT_LT(power->high - power->low, 1);
  EXPECT_GE(power->samples, 9);
  EXPECT_FALSE(PowerByCounter(readings, 200));  // It changed 99 times.
  EXPECT_FALSE(PowerByCounter({}, 1));
}

RateSlowdown Rate(double changes_per_s, double low, double high) {
  return {changes_per_s, {(low + high) / 2, low, high, 5}};
}

// Harmful is a slowdown of more than 0.01.
TEST(Interference, TheHarmlessRateIsALowerEstimateWithItsInterval) {
  const RateSlowdown harmless = Rate(1, -0.001, 0.009), unknown = Rate(5, 0.005, 0.02),
                     harmful = Rate(10, 0.02, 0.03);
  EXPECT_EQ(HarmlessRate({harmful, unknown, harmless}), (Estimate{1, 1, 10, 15}));
  // A rate above one that is unknown counts, and one above a harmful rate does not.
  EXPECT_EQ(HarmlessRate({harmless, unknown, Rate(7, 0, 0.001), harmful, Rate(20, 0, 0.001)}),
            (Estimate{7, 7, 10, 25}));
  // Nothing is said about rates above those that were tried.
  EXPECT_EQ(HarmlessRate({harmless}), (Estimate{1, 1, 1, 5}));
  EXPECT_EQ(HarmlessRate({harmless, unknown}), (Estimate{1, 1, 5, 10}));
  EXPECT_EQ(HarmlessRate({unknown}), (Estimate{0, 0, 5, 5}));
  EXPECT_EQ(HarmlessRate({harmful}), (Estimate{0, 0, 10, 5}));
}

}  // namespace
}  // namespace perseus::qualifier
