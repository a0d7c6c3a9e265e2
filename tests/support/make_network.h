// Networks for tests, built from one curve for each instruction.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "perseus/planning/frontier/network.h"

namespace perseus::frontier {

// Instruction i has the curve curves[i].
inline Network MakeNetwork(const std::vector<profile::Curve>& curves,
                           const std::vector<schedule::Dependency>& dependencies) {
  std::vector<std::int32_t> curve_of_instruction(curves.size());
  std::iota(curve_of_instruction.begin(), curve_of_instruction.end(), 0);
  Result<Network> network = BuildNetwork(curves, curve_of_instruction, dependencies);
  EXPECT_TRUE(network) << network.error().Message();
  return *network;
}

// The curve of an instruction that takes `time` at any clock.
inline profile::Curve Fixed(Nanoseconds time) { return profile::Curve{{time}, {}, {}, 0}; }

}  // namespace perseus::frontier
