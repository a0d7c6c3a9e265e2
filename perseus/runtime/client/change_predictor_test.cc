#include "perseus/runtime/client/change_predictor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

namespace perseus::client {
namespace {

constexpr double kMs = 1e6;

// A counter that changed at 5 s and has a period of 100 ms, both known within 2 ms.
ChangePredictor Started() {
  return ChangePredictor({.last_change = 5 * kSecond,
                          .last_change_error_ns = 2 * kMs,
                          .period_ns = 100 * kMs,
                          .period_error_ns = 2 * kMs,
                          .shared_ns2 = 0});
}

TEST(ChangePredictor, CountsPeriodsFromTheLastChange) {
  const ChangePredictor predictor = Started();
  EXPECT_EQ(predictor.FirstFrom(5 * kSecond).at, 5 * kSecond + 100 * kMillisecond);
  EXPECT_EQ(predictor.FirstFrom(5 * kSecond).periods, 1);
  const auto later = predictor.FirstFrom(5 * kSecond + 401 * kMillisecond);
  EXPECT_EQ(later.at, 5 * kSecond + 500 * kMillisecond);
  EXPECT_EQ(later.periods, 5);
  // Five times the error of the period.
  EXPECT_NEAR(later.error_ns, std::hypot(2, 10) * kMs, 0.2 * kMs);
}

TEST(ChangePredictor, LearnsOnWhichSideOfALookTheChangeWas) {
  const Nanoseconds expected = 5 * kSecond + 100 * kMillisecond;
  const auto then = [&](auto learn) {
    ChangePredictor predictor = Started();
    predictor.Pass(1);
    learn(predictor);
    return predictor.FirstFrom(expected + kMillisecond);
  };
  const auto nothing = then([](ChangePredictor&) {});
  const auto before =
      then([&](ChangePredictor& it) { it.WasInside(std::nullopt, expected - 2 * kMillisecond); });
  const auto after =
      then([&](ChangePredictor& it) { it.WasInside(expected + 2 * kMillisecond, std::nullopt); });
  const auto inside = then(
      [&](ChangePredictor& it) { it.WasInside(expected - kMillisecond, expected + kMillisecond); });
  const auto outside = then([&](ChangePredictor& it) {
    it.WasOutside(expected - kMillisecond, expected + kMillisecond);
  });
  EXPECT_LT(before.at, nothing.at - 3 * kMillisecond);
  EXPECT_GT(after.at, nothing.at + 3 * kMillisecond);
  EXPECT_NEAR(static_cast<double>(inside.at), static_cast<double>(nothing.at), 0.01 * kMs);
  EXPECT_LT(inside.error_ns, nothing.error_ns);
  EXPECT_GT(outside.error_ns, nothing.error_ns);
  EXPECT_LT(before.error_ns, nothing.error_ns);
}

// The change is 50 standard deviations away from where it was expected.
TEST(ChangePredictor, BelievesALookThatSurprises) {
  ChangePredictor predictor = Started();
  predictor.Pass(1);
  Nanoseconds change = 5 * kSecond + 200 * kMillisecond;
  for (int i = 0; i < 10; ++i, change += 100 * kMillisecond) {
    predictor.WasInside(change - 3 * kMillisecond, change + 3 * kMillisecond);
    predictor.Pass(1);
  }
  const auto next = predictor.FirstFrom(change);
  const auto expected = static_cast<double>(change + 100 * kMillisecond);
  EXPECT_NEAR(static_cast<double>(next.at), expected, 3 * kMs);
}

TEST(ChangePredictor, TimesStayExactForAMonth) {
  ChangePredictor predictor({.last_change = 5 * kSecond,
                             .last_change_error_ns = 1,
                             .period_ns = 100 * kMs,
                             .period_error_ns = 0,
                             .shared_ns2 = 0});
  constexpr int kPeriods = 26'000'000;
  for (int i = 0; i < kPeriods; i += 1000) predictor.Pass(1000);
  const Nanoseconds now = 5 * kSecond + kPeriods * (100 * kMillisecond);
  EXPECT_EQ(predictor.FirstFrom(now + 1).at, now + 100 * kMillisecond);
}

}  // namespace
}  // namespace perseus::client
