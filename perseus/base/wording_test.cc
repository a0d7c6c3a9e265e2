// Counted nouns, and help for unknown names.
#include "perseus/base/wording.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace perseus {
namespace {

constexpr std::string_view kSchedules[] = {"1f1b", "gpipe", "interleaved-1f1b", "interleaved-zb"};

TEST(Counted, HasThePluralOfAllButOne) {
  EXPECT_EQ(Counted(0, "step"), "0 steps");
  EXPECT_EQ(Counted(1, "step"), "1 step");
  EXPECT_EQ(Counted(2, "step"), "2 steps");
  EXPECT_EQ(Counted(1, "switch"), "1 switch");
  EXPECT_EQ(Counted(2, "switch"), "2 switches");
}

TEST(FormatPercent, HasNeitherAnExponentNorANegativeZero) {
  EXPECT_EQ(FormatPercent(0.15361), "15.36 %");
  EXPECT_EQ(FormatPercent(24), "2400.00 %");
  EXPECT_EQ(FormatPercent(-0.00001), "0.00 %");
  EXPECT_EQ(FormatPercent(-0.0044), "-0.44 %");
}

TEST(FormatChange, HasASign) {
  EXPECT_EQ(FormatChange(0.012), "+1.20 %");
  EXPECT_EQ(FormatChange(-0.004), "-0.40 %");
  EXPECT_EQ(FormatChange(0.00001), "0.00 %");
  EXPECT_EQ(FormatChange(-0.00001), "0.00 %");
}

TEST(DidYouMean, NamesAllThatBeginSo) {
  EXPECT_EQ(DidYouMean("interleaved", kSchedules),
            "did you mean \"interleaved-1f1b\" or \"interleaved-zb\"?");
  EXPECT_EQ(DidYouMean("gpi", kSchedules), "did you mean \"gpipe\"?");
}

TEST(DidYouMean, NamesTheNearest) {
  EXPECT_EQ(DidYouMean("gpip3", kSchedules), "did you mean \"gpipe\"?");
  EXPECT_EQ(DidYouMean("interleaved1f1b", kSchedules), "did you mean \"interleaved-1f1b\"?");
}

TEST(DidYouMean, SaysTheUnitOfAKeyThatHasAnother) {
  constexpr std::string_view kKeys[] = {"time_s", "switch_latency_ms"};
  EXPECT_EQ(DidYouMean("time_ms", kKeys), "did you mean \"time_s\", in seconds?");
  EXPECT_EQ(DidYouMean("tine_s", kKeys), "did you mean \"time_s\"?");
  EXPECT_EQ(DidYouMean("switch_latency_s", kKeys),
            "did you mean \"switch_latency_ms\", in milliseconds?");
}

TEST(DidYouMean, NamesAllWithoutASimilarOne) {
  const std::string_view known[] = {"1f1b", "gpipe"};
  EXPECT_EQ(DidYouMean("zb", known), "known: 1f1b, gpipe");
  EXPECT_EQ(DidYouMean("", known), "known: 1f1b, gpipe");
  EXPECT_EQ(DidYouMean("g", known), "known: 1f1b, gpipe");
}

TEST(RenameKeys, ReplacesEachKeyThatHasAName) {
  const auto renamed = [](std::string_view message) {
    return RenameKeys(message, [](std::string_view key, std::string_view value) -> std::string {
      if (key == "unknown") return "";
      return fmt::format("<{}|{}>", key, value);
    });
  };
  EXPECT_EQ(renamed("add `pp_ranks`, or `schedule = \"auto\"`"),
            "add <pp_ranks|>, or <schedule|\"auto\">");
  EXPECT_EQ(renamed("`unknown` and `chunks = 2`"), "`unknown` and <chunks|2>");
  EXPECT_EQ(renamed("a`b.csv: `perseus plan` or `fold`"), "a`b.csv: `perseus plan` or <fold|>");
  EXPECT_EQ(renamed("an end `fold"), "an end `fold");
  EXPECT_EQ(renamed(""), "");
}

}  // namespace
}  // namespace perseus
