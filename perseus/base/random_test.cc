// Random numbers.
#include "perseus/base/random.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace perseus {
namespace {

TEST(Below, IsUniform) {
  SplitMix64 random{1};
  std::vector<int> counts(7, 0);
  for (int i = 0; i < 70'000; ++i) ++counts.at(static_cast<std::size_t>(Below(random, 7)));
  // The standard deviation of a count is 93.
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 500);
}

TEST(Below, NeverReachesItsEnd) {
  const auto least = [] { return std::uint64_t{0}; };
  const auto greatest = [] { return std::numeric_limits<std::uint64_t>::max(); };
  for (const int end : {1, 2, 1'000, std::numeric_limits<int>::max()}) {
    EXPECT_EQ(Below(least, end), 0);
    EXPECT_EQ(Below(greatest, end), end - 1);
  }
}

}  // namespace
}  // namespace perseus
