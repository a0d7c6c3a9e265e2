#include "perseus/base/excerpt.h"

#include <gtest/gtest.h>

#include <array>

namespace perseus {
namespace {

TEST(Excerpt, PutsPlainTextInQuotes) {
  EXPECT_EQ(Excerpt("14l0"), "\"14l0\"");
  EXPECT_EQ(Excerpt(""), "\"\"");
  EXPECT_EQ(Excerpt("Größe 频率"), "\"Größe 频率\"");
}

TEST(Excerpt, CutsLongTextBetweenCharacters) {
  EXPECT_EQ(Excerpt(std::string(40, 'x')), '"' + std::string(40, 'x') + '"');
  EXPECT_EQ(Excerpt(std::string(41, 'x')), '"' + std::string(40, 'x') + "...\"");
}

TEST(Excerpt, EscapesControlSequencesOfATerminal) {
  EXPECT_EQ(Excerpt("a\nb\x1B[2J"), "\"a\\x0Ab\\x1B[2J\"");
  EXPECT_EQ(Excerpt("\xC2\x9B"), "\"\\xC2\\x9B\"");  // U+009B: a control sequence introducer.
  EXPECT_EQ(Excerpt(std::string_view("\0", 1)), "\"\\x00\"");
}

TEST(OneLine, EscapesTheSameAndCutsNothing) {
  EXPECT_EQ(OneLine("a\nb\x1B[2J \xFF é \u202E"), "a\\x0Ab\\x1B[2J \\xFF é \\xE2\\x80\\xAE");
  EXPECT_EQ(OneLine(std::string(5000, 'x')), std::string(5000, 'x'));
  EXPECT_EQ(OneLine(""), "");
}

// A name with such characters could look like another name in a log.
TEST(IsPrintable, RefusesInvisibleCharactersAndChangesOfDirection) {
  for (const char* text : {"a\u00ADb", "a\u061Cb", "a\u200Bb", "a\u200Fb", "a\u2028b", "a\u2029b",
                           "a\u202Eb", "a\u2066b", "a\uFEFFb", "a\U000E0041b"}) {
    EXPECT_FALSE(IsPrintable(text)) << Excerpt(text);
  }
  EXPECT_EQ(Excerpt("a\u202Eb"), "\"a\\xE2\\x80\\xAEb\"");
  for (const char* text : {"\u00A0", "\u200A", "\u2010", "\u202F", "\u2070", "\u4E2D", "\u05D0"}) {
    EXPECT_TRUE(IsPrintable(text)) << text;
  }
}

TEST(IsPrintable, AcceptsExactlyUtf8WithoutControlCharacters) {
  for (const std::string_view good : {"", "a b", "é", "频", "\U0001F600", "\xEF\xBF\xBF"}) {
    EXPECT_TRUE(IsPrintable(good)) << good;
  }
  const std::array<std::string_view, 9> bad = {"a\n",               // control
                                               "\x7F",              // delete
                                               "\x80",              // continuation without a start
                                               "\xC3",              // cut short
                                               "\xC0\xAF",          // overlong, two bytes
                                               "\xE0\x80\xAF",      // overlong, three bytes
                                               "\xED\xA0\x80",      // surrogate
                                               "\xF4\x90\x80\x80",  // above U+10FFFF
                                               "\xFF\xFE"};         // the byte order mark of UTF-16
  for (const std::string_view text : bad) EXPECT_FALSE(IsPrintable(text)) << Excerpt(text);
}

TEST(NearestName, FindsTheNameThatTheUserProbablyMeant) {
  constexpr std::array<std::string_view, 3> kNames = {"forward", "backward", "recompute"};
  EXPECT_EQ(NearestName("foward", kNames), "forward");
  EXPECT_EQ(NearestName("Backward", kNames), "backward");
  EXPECT_EQ(NearestName("fwd", kNames), "");
  EXPECT_EQ(NearestName("FORWARD", kNames), "forward");  // Capital letters are no mistake.
  // An exchange of two letters is one mistake.
  constexpr std::array<std::string_view, 3> kVerbs = {"plan", "show", "synth"};
  EXPECT_EQ(NearestName("plna", kVerbs), "plan");
  EXPECT_EQ(NearestName("shwo", kVerbs), "show");
  EXPECT_EQ(NearestName("synht", kVerbs), "synth");
  EXPECT_EQ(NearestName("lapn", kVerbs), "");
  EXPECT_EQ(NearestName("", kNames), "");
  EXPECT_EQ(NearestName(std::string(1'000'000, 'f'), kNames), "");
}

}  // namespace
}  // namespace perseus
