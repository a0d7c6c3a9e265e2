#include "perseus/cli/terminal/table.h"

#include <gtest/gtest.h>

namespace perseus::cli {
namespace {

TEST(TableTest, AlignsTheFirstColumnLeftAndTheOthersRight) {
  Table table({"plan", "time"});
  table.AddRow({"fast", "1.5 s"});
  table.AddRow({"saves 9 ± 1 %", ""});
  EXPECT_EQ(table.Format(),
            "plan            time\n"
            "-------------  -----\n"
            "fast           1.5 s\n"
            "saves 9 ± 1 %\n");
}

TEST(TableTest, ARowBeginsBelowALabelThatIsTooLong) {
  const std::string wide(60, 'w');
  Table table({"plan", wide});
  table.AddRow({"at most 18 columns", "x"});
  table.AddRow({"at most 18 columns.", "y"});
  const std::string indent(18, ' ');
  const std::string blanks(61, ' ');
  EXPECT_EQ(table.Format(), "plan                " + wide + "\n------------------  " +
                                std::string(60, '-') + "\nat most 18 columns" + blanks +
                                "x\nat most 18 columns.\n" + indent + blanks + "y\n");
}

TEST(TableTest, ContinuesBelowWithFurtherColumns) {
  const std::string wide(45, 'w');
  const std::string label(30, 'p');
  Table table({"plan", wide, "second", std::string(30, 'c')});
  table.AddRow({label, "1", "2", "3"});
  const std::string blanks(28, ' ');
  const std::string rule(30, '-');
  EXPECT_EQ(table.Format(), "plan" + blanks + wide + "\n" + rule + "  " + std::string(45, '-') +
                                "\n" + label + std::string(46, ' ') + "1\n\nplan" + blanks +
                                "second  " + std::string(30, 'c') + "\n" + rule + "  ------  " +
                                rule + "\n" + label + "       2  " + std::string(29, ' ') + "3\n");
}

TEST(WrappedTest, BreaksLinesAtBlanks) {
  const std::string line(kTableColumns, 'a');
  EXPECT_EQ(Wrapped("one\n" + line + "\n  two\n\n"), "one\n" + line + "\n  two\n\n");
  EXPECT_EQ(Wrapped("b " + line + " c d\n"), "b\n" + line + "\nc d\n");
  EXPECT_EQ(Wrapped(line + "a b"), line + "a\nb");  // A path is not broken.
  const std::string half(39, 'a');
  EXPECT_EQ(Wrapped(half + " ±" + half + " b"), half + " ±" + half + "\nb");
  EXPECT_EQ(Wrapped(half + " ± " + half + " b"), half + " ±\n" + half + " b");
  EXPECT_EQ(Wrapped(""), "");
}

TEST(FormatQuantityTest, HasSixDigitsAndAUnit) {
  EXPECT_EQ(FormatQuantity(0.0512341), "0.0512341");
  EXPECT_EQ(FormatQuantity(58321.42, "J"), "58321.4 J");
}

}  // namespace
}  // namespace perseus::cli
