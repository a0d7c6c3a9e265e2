#include "perseus/base/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perseus {
namespace {

using ::testing::HasSubstr;

TEST(RunProgram, PassesTheInputAndReturnsTheOutput) {
  // The text is longer than the buffer of a pipe.
  const std::string text(1 << 20, 'x');
  EXPECT_EQ(RunProgram({"cat"}, text).value(), text);
  EXPECT_EQ(RunProgram({"printf", "%s", "a b;$c"}, "").value(), "a b;$c");
}

TEST(RunProgram, TheErrorSaysThatTheProgramIsNotInstalled) {
  const auto result = RunProgram({"no-such-program-here"}, "");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::kUnreachable);
  EXPECT_THAT(result.error().message, HasSubstr("no-such-program-here is not installed"));
}

TEST(RunProgram, TheErrorHasTheFirstLineOfStandardError) {
  const auto result = RunProgram({"sh", "-c", "echo out; echo why >&2; echo more >&2; exit 3"}, "");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::kSystem);
  EXPECT_EQ(result.error().message, "sh failed: why");
  EXPECT_FALSE(RunProgram({"sh", "-c", "kill -9 $$"}, ""));
}

}  // namespace
}  // namespace perseus
