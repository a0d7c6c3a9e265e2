// For tests: the description of a virtual node, in a temporary directory.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "perseus/base/clock.h"
#include "perseus/base/units.h"
#include "perseus/simulation/virtual_gpu/virtual_node.h"
#include "tests/support/temporary_directory.h"

namespace perseus {
namespace virtual_gpu {

// Work that takes `seconds` at 300 W at 1000 MHz, and twice as long at 100 W at 500 MHz and below.
inline InstructionTable Work(double seconds) {
  InstructionTable table;
  table.count = 2;
  table.frequencies_mhz[0] = 500;
  table.rows[0] = {2 * seconds, 200 * seconds};
  table.frequencies_mhz[1] = 1000;
  table.rows[1] = {seconds, 300 * seconds};
  return table;
}

}  // namespace virtual_gpu

class VirtualNodeTest : public testing::Test {
 protected:
  static constexpr std::string_view kTwoGpus =
      "gpus = 2\n"
      "[gpu]\n"
      "lowest_mhz = 100\n"
      "highest_mhz = 1000\n"
      "step_mhz = 100\n"
      "power_limit_w = 400\n"
      "counter_period_ms = 20\n"
      "[switch_latency]\n"
      "median_ms = 10\n";

  std::filesystem::path Describe(std::string_view text) const {
    const auto path = directory_ / "box.toml";
    std::ofstream(path) << text;
    return path;
  }

  TemporaryDirectory directory_;
};

}  // namespace perseus
