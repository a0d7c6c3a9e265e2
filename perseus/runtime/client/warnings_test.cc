#include "perseus/runtime/client/warnings.h"

#include <gmock/gmock.h>

namespace perseus::client {
namespace {

TEST(Warnings, EachCauseIsOneLine) {
  Warnings warnings(WarningOutput::kQuiet, "rank");
  warnings.Once("plan", "a\nb: not there");
  warnings.Once("plan", "again");
  EXPECT_EQ(warnings.count(), 1U);
  EXPECT_EQ(warnings.TakeOldest(), "a\\x0Ab: not there");
  EXPECT_EQ(warnings.TakeOldest(), "");
}

// A path may have 4,096 bytes, and the remedy comes after it.
TEST(Warnings, TheMiddleOfALongOneIsLeftOut) {
  Warnings warnings(WarningOutput::kQuiet, "rank");
  warnings.Once("plan", "begin" + std::string(5000, 'x') + "end");
  const std::string text = warnings.TakeOldest();
  EXPECT_THAT(text, testing::StartsWith("beginx"));
  EXPECT_THAT(text, testing::HasSubstr("x ... x"));
  EXPECT_THAT(text, testing::EndsWith("xend"));
  EXPECT_LT(text.size(), 1100U);
}

}  // namespace
}  // namespace perseus::client
