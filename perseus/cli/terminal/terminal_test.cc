#include "perseus/cli/terminal/terminal.h"

#include <gmock/gmock.h>

#include <map>
#include <random>

#include "perseus/base/excerpt.h"

namespace perseus::cli {
namespace {

using ::testing::Each;
using ::testing::Ne;

constexpr Terminal kTerminalUtf8{.width = 80, .color = false, .unicode = true};
constexpr Terminal kAscii{.width = 80, .color = false, .unicode = false};

Terminal Describe(const OutputDevice& output, const std::map<std::string, std::string>& variables) {
  return DescribeTerminal(output, [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string Fit(std::string_view text, int columns, const Terminal& terminal = kTerminalUtf8) {
  CharacterGrid grid(1, columns);
  grid.Put(0, 0, FitColumns(text, columns, terminal));
  std::string line = grid.Format(terminal);
  line.pop_back();
  return line;
}

TEST(TerminalTest, TheWidthIsThatOfTheDeviceOrElseOfColumns) {
  EXPECT_EQ(Describe({}, {}).width, 80);
  EXPECT_EQ(Describe({}, {{"COLUMNS", "100"}}).width, 100);
  EXPECT_EQ(Describe({.columns = 120}, {{"COLUMNS", "100"}}).width, 120);
  EXPECT_EQ(Describe({.columns = 7}, {}).width, kNarrowest);
  EXPECT_EQ(Describe({.columns = 900}, {}).width, kWidest);
  for (const char* columns : {"", "wide", "0", "-90", "100x", "99999999999999999999"}) {
    EXPECT_EQ(Describe({}, {{"COLUMNS", columns}}).width, 80) << columns;
  }
}

TEST(TerminalTest, HasColorOnlyOnATerminalWithoutNoColor) {
  const OutputDevice device{.is_terminal = true, .columns = 80};
  EXPECT_TRUE(Describe(device, {{"TERM", "xterm"}}).color);
  EXPECT_TRUE(Describe(device, {{"TERM", "xterm"}, {"NO_COLOR", ""}}).color);
  EXPECT_FALSE(Describe(device, {{"TERM", "xterm"}, {"NO_COLOR", "1"}}).color);
  EXPECT_FALSE(Describe(device, {{"TERM", "dumb"}}).color);
  EXPECT_FALSE(Describe(device, {}).color);
  EXPECT_FALSE(Describe({}, {{"TERM", "xterm"}}).color);
}

TEST(TerminalTest, HasUnicodeIfTheLocaleNamesUtf8) {
  EXPECT_FALSE(Describe({}, {}).unicode);
  EXPECT_TRUE(Describe({}, {{"LANG", "de_DE.UTF-8"}}).unicode);
  EXPECT_TRUE(Describe({}, {{"LC_CTYPE", "C.utf8"}, {"LANG", "C"}}).unicode);
  EXPECT_FALSE(Describe({}, {{"LC_ALL", "C"}, {"LANG", "de_DE.UTF-8"}}).unicode);
  EXPECT_TRUE(Describe({}, {{"LC_ALL", ""}, {"LANG", "de_DE.UTF-8"}}).unicode);
  EXPECT_FALSE(Describe({}, {{"LANG", "de_DE.ISO-8859-1"}}).unicode);
}

TEST(FitColumnsTest, CutsLongText) {
  EXPECT_EQ(Fit("rank 0", 6), "rank 0");
  EXPECT_EQ(Fit("rank 10", 6), "rank …");
  EXPECT_EQ(Fit("rank 10", 6, kAscii), "rank..");
  EXPECT_EQ(Fit("rank 10", 1), "…");
  EXPECT_EQ(Fit("rank 10", 1, kAscii), ".");
}

TEST(FitColumnsTest, CountsTheColumnsOfWideCharacters) {
  EXPECT_EQ(Fit("数据", 4), "数据");
  EXPECT_EQ(Fit("数据库", 5), "数据…");
  EXPECT_EQ(Fit("数据库", 4), "数…");
  EXPECT_EQ(Fit("Größe", 5), "Größe");
}

TEST(FitColumnsTest, ShowsNoControlSequences) {
  EXPECT_EQ(Fit("a\x1b[2Jb\r\n\tc\x7f", 20), "a?[2Jb???c?");
  EXPECT_EQ(Fit("a\xff\xc3", 20), "a??");  // A byte that is not UTF-8, and half a character.
  EXPECT_EQ(Fit("e\u0301 \u202e\u200b\u0085", 20).substr(0, 5), "e? ??");
  EXPECT_EQ(Fit("Größe", 20, kAscii), "Gr??e");
}

TEST(FitColumnsTest, AnyBytesBecomePrintableTextOfThatLength) {
  std::mt19937 random(1);
  for (int round = 0; round < 5000; ++round) {
    std::string bytes(random() % 12, ' ');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const int columns = static_cast<int>(random() % 10);
    EXPECT_LE(FitColumns(bytes, columns, kTerminalUtf8).size(), columns);
    EXPECT_TRUE(IsPrintable(Fit(bytes, columns)));
    EXPECT_LE(Fit(bytes, columns, kAscii).size(), columns);
    EXPECT_THAT(Fit(bytes, columns, kAscii), Each(testing::AllOf(testing::Ge(' '), Ne('\x7f'))));
  }
}

TEST(CharacterGridTest, HasColorsOnlyOnRequestAndResetsThem) {
  CharacterGrid grid(2, 5);
  grid.Put(0, 1, U"ab", Color::kRed);
  grid.Put(0, 3, U'c', Color::kGreen);
  grid.Put(1, 3, U"outside");
  grid.Put(7, 0, U'x');
  EXPECT_EQ(grid.Format(kAscii), " abc\n   ou\n");
  EXPECT_EQ(grid.Format({.width = 80, .color = true, .unicode = false}),
            " \x1b[31mab\x1b[32mc\x1b[0m\n   ou\n");
}

TEST(CharacterGridTest, OnlyCellsInsideAreBlank) {
  CharacterGrid grid(1, 5);
  grid.Put(0, 2, U'x');
  EXPECT_TRUE(grid.IsBlank(0, 0, 2));
  EXPECT_TRUE(grid.IsBlank(0, 3, 2));
  EXPECT_FALSE(grid.IsBlank(0, 1, 2));
  EXPECT_FALSE(grid.IsBlank(0, 4, 2));
  EXPECT_FALSE(grid.IsBlank(0, -1, 2));
  EXPECT_FALSE(grid.IsBlank(1, 0, 2));
}

}  // namespace
}  // namespace perseus::cli
