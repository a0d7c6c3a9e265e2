#include "perseus/base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace perseus {
namespace {

TEST(ForEachOnAllCores, CallsTheFunctionOnceForEachItem) {
  std::vector<std::atomic<int>> done(10'000);
  ForEachOnAllCores(done.size(), [&](std::size_t i) { ++done[i]; });
  for (const auto& times : done) EXPECT_EQ(times, 1);
  ForEachOnAllCores(0, [](std::size_t) { FAIL(); });
}

TEST(ForEachOnAllCores, AnExceptionReachesTheCallerAndEndsTheWork) {
  std::atomic<int> begun = 0;
  EXPECT_THROW(ForEachOnAllCores(1'000'000,
                                 [&](std::size_t i) {
                                   ++begun;
                                   if (i == 5) throw std::runtime_error("five");
                                 }),
               std::runtime_error);
  EXPECT_LT(begun, 1'000'000);
}

}  // namespace
}  // namespace perseus
