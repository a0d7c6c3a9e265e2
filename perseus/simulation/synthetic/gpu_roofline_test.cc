#include "perseus/simulation/synthetic/gpu_roofline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace perseus::synthetic {
namespace {

using ::testing::HasSubstr;

// A large matrix product (8192 cubed), and a kernel that streams four gigabytes.
const std::vector<KernelWork> kProduct = {
    {.flops = 2 * 8192.0 * 8192 * 8192, .memory_bytes = 3 * 2 * 8192.0 * 8192}};
const std::vector<KernelWork> kStream = {{.memory_bytes = 4e9}};
const std::vector<KernelWork> kAllReduce = {{.all_reduce_bytes = 1e8}};

std::vector<double> Clocks(const GpuRoofline& gpu) {
  std::vector<double> clocks;
  for (double f = gpu.highest_frequency_mhz; f >= gpu.lowest_frequency_mhz;
       f -= gpu.frequency_step_mhz) {
    clocks.push_back(f);
  }
  return clocks;
}

TEST(GpuRoofline, PeaksAndClocksAreThoseOfTheDataSheets) {
  const auto peak_tflops = [](std::string_view name) {
    return FindGpuRoofline(name)->PeakFlops() / 1e12;
  };
  EXPECT_NEAR(peak_tflops("a100-pcie"), 312, 0.5);
  EXPECT_NEAR(peak_tflops("a100-sxm"), 312, 0.5);
  EXPECT_NEAR(peak_tflops("a40"), 149.7, 0.1);
  // The data sheet counts at the boost clock, 1,830 MHz.
  EXPECT_NEAR(peak_tflops("h100-sxm") * 1830 / 1980, 989.4, 0.5);
  EXPECT_EQ(Clocks(*FindGpuRoofline("a100-sxm")).size(), 81u);
  EXPECT_EQ(Clocks(*FindGpuRoofline("a40")).size(), 103u);
}

TEST(GpuRoofline, AHigherClockIsNeverSlower) {
  for (const GpuRoofline& gpu : GpuRooflines()) {
    for (const auto& kernels : {kProduct, kStream, kAllReduce}) {
      double before_s = 0;
      for (const double f : Clocks(gpu)) {
        const double time_s = gpu.Run(kernels, f).time_s;
        // All clocks above the power limit give the same time, apart from rounding.
        EXPECT_GE(time_s, before_s * (1 - 1e-12)) << gpu.name << " at " << f;
        before_s = time_s;
      }
    }
    // Without a power limit, the time of a product follows the clock, apart from stalls.
    const double fast_s = gpu.RunUnlimited(kProduct, gpu.highest_frequency_mhz).time_s;
    const double slow_s = gpu.RunUnlimited(kProduct, gpu.highest_frequency_mhz / 2).time_s;
    EXPECT_NEAR(slow_s / fast_s, 2 - gpu.stall_share, 1e-9) << gpu.name;
  }
}

TEST(GpuRoofline, TheClockLeavesMemoryAndTheWireAlone) {
  const GpuRoofline gpu = *FindGpuRoofline("a100-pcie");
  for (const double f : {705.0, 1410.0}) {
    EXPECT_NEAR(gpu.Run(kStream, f).time_s, 4e9 / (0.85 * 1935e9), 1e-12);
    EXPECT_NEAR(gpu.Run(kAllReduce, f).time_s, 1e8 / 31.5e9, 1e-12);
    EXPECT_NEAR(gpu.Run(kAllReduce, f).energy_j, 83.64 * 1e8 / 31.5e9, 1e-9);
  }
}

TEST(GpuRoofline, PowerStaysWithinTheLimit) {
  for (const GpuRoofline& gpu : GpuRooflines()) {
    const TimeAndEnergy unlimited = gpu.RunUnlimited(kProduct, gpu.highest_frequency_mhz);
    EXPECT_GT(unlimited.energy_j / unlimited.time_s, gpu.power_limit_w) << gpu.name;
    for (const double f : Clocks(gpu)) {
      for (const auto& kernels : {kProduct, kStream, kAllReduce}) {
        const TimeAndEnergy run = gpu.Run(kernels, f);
        EXPECT_LE(run.energy_j / run.time_s, gpu.power_limit_w * (1 + 1e-9)) << gpu.name;
      }
    }
    EXPECT_EQ(gpu.ActualFrequencyMhz(kStream, gpu.highest_frequency_mhz), gpu.highest_frequency_mhz)
        << gpu.name << " streams below its limit";
  }
}

TEST(GpuRoofline, ALimitThatNoClockKeepsGivesTheLowestOne) {
  GpuRoofline gpu = *FindGpuRoofline("a40");
  gpu.power_limit_w = 1;
  EXPECT_NEAR(gpu.ActualFrequencyMhz(kProduct, 1740), 210, 1e-6);
}

TEST(GpuRoofline, LeastEnergyIsAtAnIntermediateClock) {
  for (const GpuRoofline& gpu : GpuRooflines()) {
    const std::vector<double> clocks = Clocks(gpu);
    const auto least = std::min_element(clocks.begin(), clocks.end(), [&](double a, double b) {
      return gpu.Run(kProduct, a).energy_j < gpu.Run(kProduct, b).energy_j;
    });
    EXPECT_LT(*least, 0.9 * gpu.highest_frequency_mhz) << gpu.name;
    EXPECT_GT(*least, 2 * gpu.lowest_frequency_mhz) << gpu.name;
  }
}

TEST(GpuRoofline, AnUnknownNameIsAnErrorThatListsTheKnownNames) {
  const auto gpu = FindGpuRoofline("h200");
  ASSERT_FALSE(gpu);
  EXPECT_THAT(gpu.error().Message(), HasSubstr("choose one of a40, a100-pcie, a100-sxm, h100-sxm"));
}

}  // namespace
}  // namespace perseus::synthetic
