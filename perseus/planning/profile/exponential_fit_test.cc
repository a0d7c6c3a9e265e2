#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "perseus/base/file.h"
#include "perseus/planning/profile/curve.h"

namespace perseus::profile {
namespace {

using ::testing::HasSubstr;

struct Exponential {
  double a, b, c;
};

std::vector<Option> Sampled(const Exponential& curve, double fastest_s, double slowest_s) {
  std::vector<Option> options;
  for (int i = 0; i < 40; ++i) {
    const double t = fastest_s + (slowest_s - fastest_s) * i / 39;
    options.push_back({.frequency_mhz = 1000 + i,
                       .other_knobs = {},
                       .time = ToNanoseconds(t),
                       .energy_j = curve.a * std::exp(curve.b * t) + curve.c});
  }
  return options;
}

TEST(FitExponential, RecoversTheCurveThatMadeTheOptions) {
  for (const Exponential& truth : {Exponential{120, -40, 11}, {3000, -100, 9}, {30, -4, 2}}) {
    const Result<ExponentialFit> fit = FitExponential(Sampled(truth, 0.05, 0.08), 0);
    ASSERT_TRUE(fit) << fit.error().Message();
    // Times are rounded to nanoseconds. At slopes below 100 J * 100/s this is an error of 1e-5 J.
    // The last curve bends so little over its 30 ms (b * range is 0.12) that the error in its
    // parameters is larger.
    EXPECT_NEAR(fit->b, truth.b, 1e-3 * std::abs(truth.b));
    EXPECT_NEAR(fit->a, truth.a, 1e-2 * truth.a);
    EXPECT_NEAR(fit->At(0.06), truth.a * std::exp(truth.b * 0.06) + truth.c, 1e-5);
    EXPECT_LT(fit->root_mean_square_error_j, 1e-5);
  }
}

TEST(FitExponential, CountsEffectiveEnergy) {
  std::vector<Option> options = Sampled({120, -40, 11}, 0.05, 0.08);
  for (Option& option : options) option.energy_j += 84 * ToSeconds(option.time);
  const Result<ExponentialFit> fit = FitExponential(options, 84);
  ASSERT_TRUE(fit) << fit.error().Message();
  EXPECT_NEAR(fit->b, -40, 0.04);
}

TEST(FitExponential, NeedsThreeOptionsOnTheFront) {
  std::vector<Option> options = Sampled({120, -40, 11}, 0.05, 0.08);
  options.resize(2);
  const Result<ExponentialFit> fit = FitExponential(options, 0);
  ASSERT_FALSE(fit);
  EXPECT_THAT(fit.error().Message(), HasSubstr("only 2 of 2 are such options"));
}

TEST(FitExponential, StaysFiniteForDataThatIsNotExponential) {
  // A straight line, a single step, and times that differ only by nanoseconds.
  const auto at = [](Nanoseconds time, double energy_j) {
    return Option{.frequency_mhz = 1, .other_knobs = {}, .time = time, .energy_j = energy_j};
  };
  std::vector<Option> line, step, close;
  for (int i = 0; i < 10; ++i) {
    line.push_back(at(1000 + i, 100.0 - i));
    step.push_back(at(1000 + i, i == 0 ? 100 : 1 - 1e-9 * i));
    close.push_back(at(100'000'000 + i, 100.0 - i));
  }
  for (const auto& options : {line, step}) {
    const Result<ExponentialFit> fit = FitExponential(options, 0);
    ASSERT_TRUE(fit) << fit.error().Message();
    EXPECT_TRUE(std::isfinite(fit->a) && std::isfinite(fit->c));
    EXPECT_TRUE(std::isfinite(fit->At(ToSeconds(options.front().time))));
  }
  const Result<ExponentialFit> fit = FitExponential(close, 0);
  ASSERT_FALSE(fit);
  EXPECT_THAT(fit.error().Message(), HasSubstr("too close together for an exponential"));
}

TEST(FitExponential, DescribesMeasuredProfiles) {
  struct Case {
    const char* file;
    double blocking_power_w;
    double error;  // The error of the fit divided by the energy at the highest frequency.
  };
  // The curve of the A100 is flat at its power limit, which an exponential cannot be: about 1 %.
  // The forward pass of the A40 loses a quarter of its energy between two neighboring clocks: up to
  // 8 %.
  for (const Case& measured : {Case{"gpt3-175b_a100-sxm_pp8_tp8.csv", 83.64, 0.02},
                               Case{"bloom-176b_a40_pp8_tp8.csv", 70.38, 0.09}}) {
    const std::string path =
        fmt::format("{}/tests/data/published/{}", PERSEUS_SOURCE_DIR, measured.file);
    const Result<Profile> profile = ParseProfile(*ReadFile(path), measured.file);
    ASSERT_TRUE(profile) << profile.error().Message();
    EXPECT_EQ(profile->pp_ranks(), 8);
    for (const ProfileEntry& entry : profile->entries()) {
      const Result<ExponentialFit> fit = FitExponential(entry.options, measured.blocking_power_w);
      ASSERT_TRUE(fit) << fit.error().Message();
      EXPECT_LT(fit->b, 0);
      EXPECT_LT(fit->root_mean_square_error_j, measured.error * entry.options.front().energy_j)
          << "stage " << entry.pp_rank << " " << Name(entry.kind);
    }
  }
}

}  // namespace
}  // namespace perseus::profile
