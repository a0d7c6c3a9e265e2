#include "perseus/runtime/qualifier/estimates.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "perseus/base/random.h"

namespace perseus::qualifier {
namespace {

MATCHER_P(Encloses, truth, "") { return arg.low <= truth && truth <= arg.high; }

TEST(Statistics, NothingIsKnownWithoutSamples) {
  EXPECT_FALSE(MedianOf({}));
  EXPECT_FALSE(MeanOf({}));
}

TEST(Statistics, TheMedianOfSixSamplesIsBetweenTheFirstAndTheLast) {
  // The true median is below all six samples with probability 1/64, and above all six with the same
  // probability.
  EXPECT_EQ(MedianOf({6, 1, 5, 2, 4, 3}), (Estimate{3.5, 1, 6, 6}));
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
  EXPECT_EQ(MedianOf(samples), (Estimate{10.5, 6, 15, 20}));
}

TEST(Statistics, TheMeanHasTheIntervalOfStudent) {
  const auto mean = MeanOf({1, 2, 3}).value();
  EXPECT_DOUBLE_EQ(mean.value, 2);
  // The standard deviation is 1, with 2 degrees of freedom.
  EXPECT_NEAR(mean.high - 2, 4.302653 / std::sqrt(3), 1e-6);
  EXPECT_NEAR(2 - mean.low, 4.302653 / std::sqrt(3), 1e-6);
}

// Returns the share of 400 experiments whose interval covers the truth. With 95 %, this share is
// below 0.92 in less than one of a hundred such tests. The seeds are fixed, so the result is always
// the same.
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
  bool is_slow = false;  // As on an H100, a read takes 3 ms, and 17 ms for one read of a hundred.
};

std::vector<device::Telemetry> ReadingsOf(const Counter& counter, double power_w,
                                          std::uint64_t seed = 11) {
  SplitMix64 random{seed};
  std::vector<device::Telemetry> readings;
  Nanoseconds length = 0;
  for (Nanoseconds at = 0; at < 10 * kSecond; at += length + 2 * kMillisecond) {
    if (counter.is_slow) length = (Below(random, 100) == 0 ? 17 : 3) * kMillisecond;
    // The driver may take the value at any moment of the read.
    const double taken_ms = static_cast<double>(at) / 1e6 +
                            Uniform(random) * static_cast<double>(length) / kMillisecond;
    const double tick_s = std::floor(taken_ms / counter.period_ms) * counter.period_ms / 1000;
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
  const auto found = ExamineCounter(ReadingsOf(counter, 307.7)).value();
  EXPECT_THAT(found.period_ms, Encloses(100));
  EXPECT_DOUBLE_EQ(found.resolution_j, 0.5);
  EXPECT_THAT(found.bias, Encloses(0.03));
  EXPECT_LT(found.bias.high - found.bias.low, 0.01);
}

TEST(EnergyCounter, NoisyPowerReadingsWidenTheInterval) {
  const auto found = ExamineCounter(ReadingsOf({.power_noise = 0.05}, 301)).value();
  EXPECT_THAT(found.bias, Encloses(0.03));
}

TEST(EnergyCounter, IntervalsAllowForSlowReads) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const auto readings = ReadingsOf({.resolution_j = 0.001, .is_slow = true}, 300, seed);
    const auto found = ExamineCounter(readings).value();
    EXPECT_THAT(found.period_ms, Encloses(100)) << seed;
    EXPECT_THAT(found.bias, Encloses(0.03)) << seed;
    EXPECT_LT(found.bias.high - found.bias.low, 0.02) << seed;
    const auto power = PowerByCounter(readings, 9).value();
    EXPECT_THAT(power, Encloses(309)) << seed;
  }
}

TEST(EnergyCounter, SaysNothingAboutACounterThatStands) {
  EXPECT_FALSE(ExamineCounter(ReadingsOf({.period_ms = 3000}, 301)));
  EXPECT_FALSE(ExamineCounter({}));
}

TEST(EnergyCounter, PowerByCounter) {
  const auto readings = ReadingsOf({.resolution_j = 0.001, .bias = 0}, 300);
  const auto power = PowerByCounter(readings, 9).value();
  EXPECT_THAT(power, Encloses(300));
  EXPECT_LT(power.high - power.low, 1);
  EXPECT_GE(power.samples, 9);
  EXPECT_FALSE(PowerByCounter(readings, 200));  // The counter changed 99 times.
  EXPECT_FALSE(PowerByCounter({}, 1));
}

TEST(EnergyCounter, PowerComesFromReadingsAfterTheLastFall) {
  auto readings = ReadingsOf({.resolution_j = 0.001, .bias = 0}, 300);
  for (std::size_t i = 0; i < readings.size() / 2; ++i) *readings[i].energy_j += 213;
  for (std::size_t i = 0; i < 100; ++i) readings[i].energy_j.reset();  // The counter is on trial.
  const auto power = PowerByCounter(readings, 9).value();
  EXPECT_THAT(power, Encloses(300));
  EXPECT_LT(power.high - power.low, 2);
}

RateSlowdown Rate(double changes_per_s, double low, double high) {
  return {changes_per_s, {(low + high) / 2, low, high, 5}};
}

// A slowdown of more than 0.01 is harmful.
TEST(Interference, TheHarmlessRateIsALowerEstimateWithItsInterval) {
  const RateSlowdown harmless = Rate(1, -0.001, 0.009), unknown = Rate(5, 0.005, 0.02),
                     harmful = Rate(10, 0.02, 0.03);
  EXPECT_EQ(HarmlessRate({harmful, unknown, harmless}), (Estimate{1, 1, 10, 15}));
  // A harmless rate counts if it is above an unknown rate, and does not count if it is above a
  // harmful rate.
  EXPECT_EQ(HarmlessRate({harmless, unknown, Rate(7, 0, 0.001), harmful, Rate(20, 0, 0.001)}),
            (Estimate{7, 7, 10, 25}));
  // The result says nothing about rates above those that were tried.
  EXPECT_EQ(HarmlessRate({harmless}), (Estimate{1, 1, 1, 5}));
  EXPECT_EQ(HarmlessRate({harmless, unknown}), (Estimate{1, 1, 5, 10}));
  EXPECT_EQ(HarmlessRate({unknown}), (Estimate{0, 0, 5, 5}));
  EXPECT_EQ(HarmlessRate({harmful}), (Estimate{0, 0, 10, 5}));
}

constexpr Nanoseconds kDistance = 100 * kMicrosecond;

// Work at rate 1 until `landing`, and at `ratio` from then on:
//
//   rate   1 ──────────┐call          ratio ─────────
//                      └ ... 1 ... landing
std::vector<WorkSample> Series(Nanoseconds landing, double ratio, double noise, Nanoseconds end) {
  SplitMix64 random{3};
  std::vector<WorkSample> samples;
  for (Nanoseconds at = 0; at < end; at += kDistance) {
    const double before = static_cast<double>(std::min(at, landing));
    const double after = static_cast<double>(std::max<Nanoseconds>(0, at - landing)) * ratio;
    samples.push_back({at + std::llround(noise * kDistance * Normal(random)), before + after});
  }
  return samples;
}

TEST(Landing, IsFoundToASample) {
  for (const Nanoseconds landing : {7 * kMillisecond, 12'345 * kMicrosecond, 30 * kMillisecond}) {
    for (const double ratio : {0.4, 0.97, 1.03, 2.5}) {
      const auto found =
          FindLanding(Series(landing, ratio, 0, 50 * kMillisecond), {5 * kMillisecond, ratio});
      ASSERT_TRUE(found) << landing << " " << ratio;
      EXPECT_LE(std::abs(found->at - landing), kDistance) << landing << " " << ratio;
    }
  }
}

TEST(Landing, IsFoundInNoise) {
  // The noise is 0.5 % of a sample's distance, and the switch is 3 %: 6 standard deviations for
  // each sample.
  const Nanoseconds landing = 20 * kMillisecond;
  const auto samples = Series(landing, 0.97, 0.005, 60 * kMillisecond);
  const Nanoseconds found = FindLanding(samples, {5 * kMillisecond, 0.97}).value().at;
  EXPECT_LE(std::abs(found - landing), 2 * kDistance);
}

// The work stops for the time of the stall, from `begin` on. Meanwhile, the kernel writes no
// sample.
std::vector<WorkSample> WithStall(std::vector<WorkSample> samples, Nanoseconds begin,
                                  Nanoseconds stall) {
  for (WorkSample& sample : samples) {
    if (sample.at > begin) sample.at += stall;
  }
  return samples;
}

// The landing may be anywhere in a step, so the mean of many landings counts.
TEST(Landing, TheStallIsTheMissingWork) {
  for (const double ratio : {0.4, 0.97, 1.03, 2.5}) {
    // From the landing to the stall: before it, at it, after it.
    for (const Nanoseconds from_landing : {-9 * kMillisecond, Nanoseconds{0}, 3 * kMillisecond}) {
      for (const Nanoseconds stall :
           {Nanoseconds{0}, 30 * kMicrosecond, 114 * kMicrosecond, 5 * kMillisecond}) {
        double sum = 0;
        constexpr int kLandings = 100;
        for (int i = 0; i < kLandings; ++i) {
          const Nanoseconds landing = 20 * kMillisecond + i * kDistance / kLandings;
          const auto series = WithStall(Series(landing, ratio, 0.005, 60 * kMillisecond),
                                        landing + from_landing, stall);
          const auto found = FindLanding(series, {5 * kMillisecond, ratio});
          ASSERT_TRUE(found) << ratio << " " << from_landing << " " << stall;
          sum += static_cast<double>(found->stall);
        }
        EXPECT_NEAR(sum / kLandings, static_cast<double>(stall), kLeastMissing * kDistance)
            << ratio << " " << from_landing << " " << stall;
      }
    }
  }
}

TEST(Landing, IsNotInventedWhileTheClockStays) {
  const auto series = Series(kSecond, 0.97, 0.005, 60 * kMillisecond);
  EXPECT_FALSE(FindLanding(series, {5 * kMillisecond, 0.97}));
  // The rate rises, although it should fall.
  const auto opposite = Series(20 * kMillisecond, 1.5, 0, 60 * kMillisecond);
  EXPECT_FALSE(FindLanding(opposite, {5 * kMillisecond, 0.5}));
  // A power cap keeps the clock low: the rate rises by a tenth of the expected rise.
  const auto limited = Series(20 * kMillisecond, 1.1, 0, 60 * kMillisecond);
  EXPECT_FALSE(FindLanding(limited, {5 * kMillisecond, 2}));
}

TEST(Landing, NeedsSamplesOnBothSides) {
  EXPECT_FALSE(FindLanding({}, {0, 2}));
  EXPECT_FALSE(FindLanding(Series(kMillisecond, 2, 0, 10 * kMillisecond), {0, 2}));
}

TEST(Landing, ARampCountsAtItsMiddle) {
  // The rate rises from 1 to 2 between 10 and 20 ms.
  std::vector<WorkSample> samples;
  double work = 0;
  for (Nanoseconds at = 0; at < 60 * kMillisecond; at += kDistance) {
    samples.push_back({at, work});
    const double part = static_cast<double>(at - 10 * kMillisecond) / (10 * kMillisecond);
    work += (1 + std::clamp(part, 0.0, 1.0)) * kDistance;
  }
  const auto found = FindLanding(samples, {5 * kMillisecond, 2}).value();
  // The split is at the moment at which the rate is the mean of the two levels. Each half of the
  // ramp moves its level by its share of the time: 1.25 / 15 and 1.25 / 45. So the mean is 1.53
  // instead of 1.5. The ramp reaches 1.53 0.3 ms later. With the levels of that split, the moment
  // is again a little later.
  EXPECT_NEAR(static_cast<double>(found.at), 15e6, 0.5e6);
}

}  // namespace
}  // namespace perseus::qualifier
