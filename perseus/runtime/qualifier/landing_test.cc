#include "perseus/runtime/qualifier/landing.h"

#include <gtest/gtest.h>

#include <cmath>

#include "perseus/base/random.h"

namespace perseus::qualifier {
namespace {

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
      EXPECT_LE(std::abs(*found - landing), kDistance) << landing << " " << ratio;
    }
  }
}

TEST(Landing, IsFoundInNoise) {
  // Noise of 0.5 % of a sample's distance, and a switch of 3 %: 6 standard deviations a sample.
  const Nanoseconds landing = 20 * kMillisecond;
  const auto found =
      FindLanding(Series(landing, 0.97, 0.005, 60 * kMillisecond), {5 * kMillisecond, 0.97});
  ASSERT_TRUE(found);
  EXPECT_LE(std::abs(*found - landing), 2 * kDistance);
}

TEST(Landing, IsNotInventedWhileTheClockStays) {
  const auto series = Series(kSecond, 0.97, 0.005, 60 * kMillisecond);
  EXPECT_FALSE(FindLanding(series, {5 * kMillisecond, 0.97}));
  // The rate rises where it should fall.
  const auto opposite = Series(20 * kMillisecond, 1.5, 0, 60 * kMillisecond);
  EXPECT_FALSE(FindLanding(opposite, {5 * kMillisecond, 0.5}));
  // A power cap keeps the clock low: the rate rises by a tenth of what it should.
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
  const auto found = FindLanding(samples, {5 * kMillisecond, 2});
  ASSERT_TRUE(found);
  // The split is where the rate is the mean of the two levels. Each half of the ramp moves its
  // level by its share of the time: 1.25 / 15 and 1.25 / 45. So the mean is 1.53 instead of 1.5,
  // which the ramp reaches 0.3 ms later, and again a little later with the levels of that split.
  EXPECT_NEAR(static_cast<double>(*found), 15e6, 0.5e6);
}

}  // namespace
}  // namespace perseus::qualifier
