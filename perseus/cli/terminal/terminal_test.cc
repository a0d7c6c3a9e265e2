#include "perseus/cli/terminal/terminal.h"

#include <gtest/gtest.h>

#include <map>

namespace perseus::cli {
namespace {

Terminal Describe(const OutputDevice& output, const std::map<std::string, std::string>& variables) {
  return DescribeTerminal(output, [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
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

}  // namespace
}  // namespace perseus::cli
