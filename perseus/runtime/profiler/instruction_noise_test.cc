// Estimates the noise of instructions from steps with known noise.
#include "perseus/runtime/profiler/instruction_noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "perseus/base/random.h"
#include "perseus/base/units.h"

namespace perseus::profiler {
namespace {

struct NoiseCase {
  double independent = 0;
  double common = 0;
  double time_stamp_s = 0;  // The standard deviation of the error of a time stamp.
  int microbatches = 12;
  int steps = 3;  // The number of steps in a block.
  int blocks = 96;
};

// Forwards of 20 ms and backwards of 50 ms. The first forward always takes twice as long.
std::vector<protocol::RanInstruction> NoisyStep(const NoiseCase& spec, SplitMix64& random) {
  std::vector<protocol::RanInstruction> step;
  const double shared = 1 + spec.common * Normal(random);
  double at_s = 0;
  double stamp_s = spec.time_stamp_s * Normal(random);
  for (int k = 0; k < 2 * spec.microbatches; ++k) {
    const bool is_forward = k % 2 == 0;
    const double mean_s = is_forward ? (k == 0 ? 0.04 : 0.02) : 0.05;
    const double end_s = at_s + mean_s * shared * (1 + spec.independent * Normal(random));
    const double end_stamp_s = spec.time_stamp_s * Normal(random);
    protocol::RanInstruction one;
    one.kind = is_forward ? InstructionKind::kForward : InstructionKind::kBackward;
    one.microbatch = k / 2;
    one.begin = ToNanoseconds(at_s + 1);
    one.duration = ToNanoseconds(end_s + end_stamp_s - at_s - stamp_s);
    step.push_back(one);
    at_s = end_s;
    stamp_s = end_stamp_s;
  }
  return step;
}

MeasuredNoise Measure(const NoiseCase& spec, std::uint64_t seed) {
  SplitMix64 random{seed};
  InstructionNoise noise;
  for (int block = 0; block < spec.blocks; ++block) {
    std::vector<std::vector<protocol::RanInstruction>> steps;
    for (int i = 0; i < spec.steps; ++i) steps.push_back(NoisyStep(spec, random));
    noise.Add(steps);
  }
  return noise.Solve().value();
}

// The relative error of a standard deviation from n squares is 1 / sqrt(2 n). This is 1 % for the
// 4,608 independent errors, and 5 % for the 192 sums of steps. The covariances of neighbors triple
// the variance of the first error. The tolerances are four such errors.
TEST(InstructionNoise, FindsBothParts) {
  for (const NoiseCase& spec :
       {NoiseCase{.independent = 0.01}, NoiseCase{.independent = 0.01, .common = 0.01},
        NoiseCase{.independent = 0.002, .common = 0.01}, NoiseCase{.independent = 0.05}}) {
    const MeasuredNoise found = Measure(spec, 1);
    EXPECT_NEAR(found.noise.independent, spec.independent, 0.08 * spec.independent);
    // Without common noise, the estimated common variance is within four errors of 0. The error
    // comes from the sums of steps: independent^2 * sum of squares / (sum of times)^2 * sqrt(2 /
    // 192).
    const double least = spec.independent * std::sqrt(0.054 * 4 * 0.102);
    EXPECT_NEAR(found.noise.common, spec.common, 0.2 * spec.common + least);
  }
}

TEST(InstructionNoise, ErrorsOfTimeStampsAreNoNoise) {
  // 1 ms of 20 ms. If time stamps counted as noise, the noise would be 2 % of the mean square of
  // times.
  const NoiseCase spec{.independent = 0.01, .time_stamp_s = 0.001, .blocks = 480};
  const MeasuredNoise found = Measure(spec, 2);
  EXPECT_NEAR(found.noise.independent, 0.01, 0.005);
  EXPECT_LT(found.noise.common, 0.004);
}

TEST(InstructionNoise, IntervalsCoverTheTruth) {
  const NoiseCase spec{.independent = 0.01, .common = 0.01, .microbatches = 8, .blocks = 36};
  int independent = 0;
  int common = 0;
  constexpr int kRuns = 100;
  for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
    const MeasuredNoise found = Measure(spec, seed);
    if (std::abs(found.noise.independent - 0.01) <= found.independent_ci) ++independent;
    if (std::abs(found.noise.common - 0.01) <= found.common_ci) ++common;
  }
  EXPECT_GE(independent, 88);
  EXPECT_GE(common, 88);
}

TEST(InstructionNoise, WithoutNoiseItIsZero) {
  const MeasuredNoise found = Measure({}, 1);
  EXPECT_LT(found.noise.independent, 1e-7);  // Times are whole nanoseconds.
  EXPECT_LT(found.noise.common, 1e-7);
}

// An instruction that stalled is absent from its step. It is then left out of the other steps of
// its block.
TEST(InstructionNoise, LeavesOutWhatSomeStepsLack) {
  SplitMix64 random{3};
  const NoiseCase spec{.independent = 0.01};
  InstructionNoise noise;
  for (int block = 0; block < spec.blocks; ++block) {
    std::vector<std::vector<protocol::RanInstruction>> steps;
    for (int i = 0; i < spec.steps; ++i) steps.push_back(NoisyStep(spec, random));
    steps[1].erase(steps[1].begin() + 5);
    steps.emplace_back();  // This step does not count.
    noise.Add(steps);
  }
  EXPECT_NEAR(noise.Solve()->noise.independent, 0.01, 0.001);
}

TEST(InstructionNoise, FewBlocksShowNothing) {
  SplitMix64 random{4};
  InstructionNoise noise;
  for (std::size_t block = 0; block + 1 < InstructionNoise::kGroups; ++block) {
    noise.Add(std::vector{NoisyStep({}, random), NoisyStep({}, random)});
    EXPECT_FALSE(noise.Solve());
  }
  const std::vector<std::vector<protocol::RanInstruction>> one_step(1, NoisyStep({}, random));
  noise.Add(one_step);  // A single step has no variance.
  EXPECT_FALSE(noise.Solve());
  noise.Add(std::vector{NoisyStep({}, random), NoisyStep({}, random)});
  EXPECT_TRUE(noise.Solve());
  EXPECT_EQ(InstructionNoise::Restore(noise.state()).state(), noise.state());
}

}  // namespace
}  // namespace perseus::profiler
