#include "perseus/base/number.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace perseus {
namespace {

TEST(Number, IsTheWholeText) {
  EXPECT_EQ(ParseNumber<int>("-17"), -17);
  EXPECT_EQ(ParseNumber<double>("2.5e3"), 2500);
  EXPECT_EQ(ParseNumber<std::uint64_t>("ff", 16), 255U);
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "x", "0x1"}) {
    EXPECT_EQ(ParseNumber<int>(text), std::nullopt) << text;
    EXPECT_EQ(ParseNumber<double>(text), std::nullopt) << text;
    EXPECT_EQ(ParseNumber<int>(text, 10), std::nullopt) << text;
  }
}

TEST(Number, HasToFit) {
  EXPECT_EQ(ParseNumber<std::int8_t>("127"), 127);
  EXPECT_EQ(ParseNumber<std::int8_t>("128"), std::nullopt);
  EXPECT_EQ(ParseNumber<unsigned>("-1"), std::nullopt);
  EXPECT_EQ(ParseNumber<double>("1e400"), std::nullopt);
}

}  // namespace
}  // namespace perseus
