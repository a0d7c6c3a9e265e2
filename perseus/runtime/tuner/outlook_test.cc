#include "perseus/runtime/tuner/outlook.h"

#include <gtest/gtest.h>

namespace perseus::tuner {
namespace {

TEST(OutlookTest, DescribesRows) {
  EXPECT_EQ(Describe({{0, 0.061}, {1, 0.0793}, {10, 0.14}}),
            "estimated savings: 6.1 % with no slowdown, 7.9 % at 1 %, 14.0 % at 10 %");
}

}  // namespace
}  // namespace perseus::tuner
