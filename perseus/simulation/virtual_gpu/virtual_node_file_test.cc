#include "perseus/simulation/virtual_gpu/virtual_node_file.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace perseus::virtual_gpu {
namespace {

std::string ErrorOf(std::string_view text) {
  const auto spec = ParseVirtualNode(text, "dir/box.toml");
  return spec ? "no error" : spec.error().Message();
}

TEST(VirtualNodeFile, TheExampleHasAllFields) {
  const auto spec =
      ReadVirtualNode(std::string(PERSEUS_SOURCE_DIR) + "/examples/virtual-node.toml");
  ASSERT_TRUE(spec) << spec.error().Message();
  EXPECT_EQ(spec->name, "box");
  EXPECT_EQ(spec->gpus, 8);
  EXPECT_EQ(spec->rate, 1);
  EXPECT_EQ(spec->gpu_name, "Virtual a100-sxm");
  EXPECT_EQ(spec->gpu.sm_clocks.count, 81);
  EXPECT_EQ(spec->gpu.sm_clocks.lowest(), 210);
  EXPECT_EQ(spec->gpu.sm_clocks.highest(), 1410);
  EXPECT_EQ(spec->gpu.default_power_limit_mw, 400'000);
  EXPECT_EQ(spec->gpu.least_power_limit_mw, 100'000);
  EXPECT_DOUBLE_EQ(spec->gpu.switch_latency_s, 0.01);
  EXPECT_EQ(spec->gpu.thermal.throttle_mhz, 810);
}

TEST(VirtualNodeFile, AModelAloneIsEnough) {
  const auto spec = ParseVirtualNode("gpus = 2\n[gpu]\nmodel = \"a40\"", "dir/box.toml");
  ASSERT_TRUE(spec) << spec.error().Message();
  EXPECT_EQ(spec->name, "box");
  EXPECT_EQ(spec->state, "dir/box.toml.state");
  EXPECT_EQ(spec->gpu.sm_clocks.highest(), 1740);
  EXPECT_EQ(spec->gpu.blocking_power_w, 70.38);
  EXPECT_EQ(spec->gpu.most_power_limit_mw, 300'000);
  EXPECT_EQ(spec->gpu.memory_clocks.count, 1);
}

TEST(VirtualNodeFile, EachGpuHasItsDeviceFile) {
  const std::string text = "gpus = 2\n[gpu]\nmodel = \"a40\"";
  const auto none = ParseVirtualNode(text, "/dir/box.toml");
  ASSERT_TRUE(none) << none.error().Message();
  EXPECT_EQ(DeviceFileOf(*none, 0), "");
  const auto beside = ParseVirtualNode("device_file = \"dev/gpu{}\"\n" + text, "/a{}/box.toml");
  ASSERT_TRUE(beside) << beside.error().Message();
  EXPECT_EQ(DeviceFileOf(*beside, 0), "/a{}/dev/gpu0");
  EXPECT_EQ(DeviceFileOf(*beside, 1), "/a{}/dev/gpu1");
  const auto real = ParseVirtualNode("device_file = \"/dev/nvidia{}\"\n" + text, "box.toml");
  ASSERT_TRUE(real) << real.error().Message();
  EXPECT_EQ(DeviceFileOf(*real, 1), "/dev/nvidia1");
  for (const char* bad : {"gpu", "{}{}"}) {
    EXPECT_EQ(ErrorOf(fmt::format("device_file = \"{}\"\n{}", bad, text)),
              "dir/box.toml:1: device_file does not contain {} exactly once (write device_file = "
              "\"gpu{}\")");
  }
}

TEST(VirtualNodeFile, ClocksOfARangeAndOfAProfile) {
  const auto range = ParseVirtualNode(
      "gpus = 1\nstate = \"x/s\"\n[gpu]\nlowest_mhz = 500\nhighest_mhz = 1000\nstep_mhz = 200\n"
      "memory_clocks_mhz = []",
      "dir/box.toml");
  ASSERT_TRUE(range) << range.error().Message();
  EXPECT_EQ(range->state, "dir/x/s");
  EXPECT_EQ(range->gpu.sm_clocks.count, 3);
  EXPECT_EQ(range->gpu.sm_clocks.lowest(), 600);  // The range steps down from the highest clock.
  EXPECT_EQ(range->gpu.memory_clocks.count, 0);
  EXPECT_EQ(range->gpu.default_power_limit_mw, 0);

  const auto profile = ParseVirtualNode("gpus = 1\n[gpu]\nprofile = \"gpt3-like_a100_pp8.csv\"",
                                        std::string(PERSEUS_SOURCE_DIR) + "/examples/box.toml");
  ASSERT_TRUE(profile) << profile.error().Message();
  EXPECT_EQ(profile->gpu.sm_clocks.highest(), 1410);
  EXPECT_GT(profile->gpu.sm_clocks.count, 10);
}

TEST(VirtualNodeFile, ChipsDifferInPower) {
  const std::string text = "gpus = 2\n[gpu]\nmodel = \"a40\"\n";
  const auto equal = ParseVirtualNode(text, "dir/box.toml");
  ASSERT_TRUE(equal) << equal.error().Message();
  EXPECT_EQ(equal->ModelOf(1), equal->gpu);
  const auto differ = ParseVirtualNode(
      text + "power_limit_wander = 0.018\npower_factors = [1, 1.1]", "dir/box.toml");
  ASSERT_TRUE(differ) << differ.error().Message();
  EXPECT_EQ(differ->gpu.power_limit_wander, 0.018);
  EXPECT_EQ(differ->ModelOf(0).power_factor, 1);
  EXPECT_EQ(differ->ModelOf(1).power_factor, 1.1);
  for (const char* bad : {"1.1", "[1.1]", "[1, 0]", "[1, 5]", "[1, \"1\"]"}) {
    EXPECT_EQ(ErrorOf(fmt::format("{}power_factors = {}", text, bad)),
              "dir/box.toml:4: power_factors is not a list of 2 numbers from 0.25 to 4 (write one "
              "number for each GPU, such as 1.1 for a GPU that draws 10 % more)");
  }
}

TEST(VirtualNodeFile, FactsGiveDefaults) {
  const std::string path = std::string(PERSEUS_SOURCE_DIR) + "/examples/box.toml";
  const std::string node =
      "gpus = 1\n[gpu]\nmodel = \"a100-sxm\"\nfacts = \"hardware-facts.toml\"\n";
  const auto spec = ParseVirtualNode(node, path);
  ASSERT_TRUE(spec) << spec.error().Message();
  EXPECT_DOUBLE_EQ(spec->gpu.idle_power_w, (62 + 56) / 2.0);
  EXPECT_DOUBLE_EQ(spec->gpu.blocking_power_w, (95 + 77.5) / 2);
  EXPECT_EQ(spec->gpu.counter_period, 99'800'000);
  // The slowest case has a median of 12.5 ms, and 95 % of its switches take at most 21 ms.
  EXPECT_DOUBLE_EQ(spec->gpu.switch_latency_s, 0.0125);
  EXPECT_NEAR(0.0125 * std::exp(1.645 * spec->gpu.switch_latency_spread), 0.021, 1e-6);

  const auto own =
      ParseVirtualNode(node +
                           "idle_power_w = 40\nblocking_power_w = 70\ncounter_period_ms = 20\n"
                           "[switch_latency]\nmedian_ms = 3\nspread = 0\n",
                       path);
  ASSERT_TRUE(own) << own.error().Message();
  EXPECT_EQ(own->gpu.idle_power_w, 40);
  EXPECT_EQ(own->gpu.blocking_power_w, 70);
  EXPECT_EQ(own->gpu.counter_period, 20'000'000);
  EXPECT_DOUBLE_EQ(own->gpu.switch_latency_s, 0.003);
  EXPECT_EQ(own->gpu.switch_latency_spread, 0);

  EXPECT_THAT(ErrorOf("gpus = 1\n[gpu]\nmodel = \"a100\"\nfacts = \"none.toml\""),
              testing::StartsWith("dir/box.toml:4: "));
}

TEST(VirtualNodeFile, EveryMistakeHasItsPlace) {
  const std::string model = "\n[gpu]\nmodel = \"a100\"\n";
  EXPECT_THAT(ErrorOf("gpus = "), testing::StartsWith("dir/box.toml:1: not TOML: "));
  EXPECT_EQ(ErrorOf(model), "dir/box.toml:1: the virtual node has no gpus (write gpus = 8)");
  EXPECT_EQ(
      ErrorOf("gpus = 65" + model),
      "dir/box.toml:1: gpus is not a whole number from 1 to 64 (for example, write gpus = 1)");
  EXPECT_EQ(ErrorOf("gpus = 1\nrat = 2" + model),
            "dir/box.toml:2: the virtual node has no key \"rat\" (did you mean \"rate\"?)");
  EXPECT_EQ(ErrorOf("gpus = 1\nrate = 0" + model),
            "dir/box.toml:2: rate is below 0.001 (write rate = 1)");
  EXPECT_EQ(ErrorOf("gpus = 1\nname = \"a b\"" + model),
            "dir/box.toml:2: \"a b\" cannot be the name of a node (write name = \"box\": 1 to 40 "
            "letters, digits, dots, dashes and underscores)");
  EXPECT_EQ(ErrorOf("gpus = 1\ngpu = 3"), "dir/box.toml:2: gpu is not a table (write [gpu])");
  EXPECT_EQ(ErrorOf("gpus = 1\n[gpu]\nmodel = \"a101\""),
            "dir/box.toml:3: model \"a101\" is unknown (did you mean \"a100\"?)");
}

TEST(VirtualNodeFile, AGpuStatesItsClocksInExactlyOneWay) {
  const std::string one_way =
      "dir/box.toml:2: [gpu] has to state its clocks in exactly one way (write model = "
      "\"a100-sxm\", or profile = \"profile.csv\", or lowest_mhz = 210 and highest_mhz = 1410)";
  EXPECT_EQ(ErrorOf("gpus = 1\n[gpu]\n"), one_way);
  // A table that the file lacks has no line.
  EXPECT_THAT(ErrorOf("gpus = 1\n"), testing::StartsWith("dir/box.toml:1: [gpu] has to state"));
  EXPECT_EQ(ErrorOf("gpus = 1\n[gpu]\nmodel = \"a100\"\nlowest_mhz = 200"), one_way);
  EXPECT_EQ(ErrorOf("gpus = 1\n[gpu]\nlowest_mhz = 200"),
            "dir/box.toml:2: [gpu] has only one of lowest_mhz and highest_mhz (write both)");
  EXPECT_EQ(ErrorOf("gpus = 1\n[gpu]\nlowest_mhz = 200\nhighest_mhz = 2000\nstep_mhz = 1"),
            "dir/box.toml:3: 200 to 2000 MHz in steps of 1 are not 1 to 128 clocks (write for "
            "example lowest_mhz = 210, highest_mhz = 1410, step_mhz = 15)");
  EXPECT_EQ(ErrorOf("gpus = 1\n[gpu]\nmodel = \"a100\"\nstep_mhz = 5"),
            "dir/box.toml:4: step_mhz needs lowest_mhz and highest_mhz (remove it, or add both)");
  EXPECT_EQ(
      ErrorOf("gpus = 1\n[gpu]\nprofile = \"none.csv\""),
      "dir/box.toml:3: dir/none.csv: cannot read: No such file or directory (check the name and "
      "the directory)");
}

TEST(VirtualNodeFile, NumbersHaveTheirRanges) {
  const auto of_gpu = [](std::string_view line) {
    return ErrorOf("gpus = 1\n[gpu]\nmodel = \"a100\"\n" + std::string(line));
  };
  EXPECT_EQ(of_gpu("counter_period_ms = 0"),
            "dir/box.toml:4: counter_period_ms is below 0.001 (write counter_period_ms = 100)");
  EXPECT_EQ(of_gpu("memory_clocks_mhz = [1, \"2\"]"),
            "dir/box.toml:4: memory_clocks_mhz is not a list of MHz (write memory_clocks_mhz = "
            "[810, 1215])");
  EXPECT_EQ(of_gpu("most_power_limit_w = 300"),
            "dir/box.toml:4: the power limit of 475 W is not between 118.75 and 300 W (write "
            "power_limit_w between least_power_limit_w and most_power_limit_w)");
  EXPECT_EQ(of_gpu("[switch_latency]\nmedian_ms = -1"),
            "dir/box.toml:5: median_ms is not a number from 0 to 60000 (for example, write "
            "median_ms = 0.1)");
  EXPECT_EQ(of_gpu("[thermal]\nresume_at_c = 90"),
            "dir/box.toml:5: resume_at_c is not at least half a degree below throttle_at_c (write "
            "resume_at_c = 85)");
  EXPECT_EQ(of_gpu("[thermal]\ntime_constant_s = 0"),
            "dir/box.toml:5: time_constant_s is below 0.001 (write time_constant_s = 20)");
}

}  // namespace
}  // namespace perseus::virtual_gpu
