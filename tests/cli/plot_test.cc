// Tests `perseus plan --plot`, which draws the frontier after the table.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "tests/cli/program.h"

namespace perseus {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Not;

class PlotTest : public CommandTest {
 protected:
  PlotTest() { SetTerminal("C.UTF-8", "60"); }

  // Sets the terminal for the programs that the test runs from now on. Their output is a file, so
  // it has no color.
  static void SetTerminal(const char* locale, const char* columns) {
    ::setenv("LC_ALL", locale, 1);
    ::setenv("COLUMNS", columns, 1);
  }

  // Returns the output after the table and the finding.
  std::string Plot(const std::string& arguments) const {
    const std::string out = RunWell(arguments + " --plot");
    std::string drawing = out.substr(std::min(out.find("\nenergy of"), out.size()));
    EXPECT_EQ(out.size() - drawing.size(), RunWell(arguments).size()) << out;
    return drawing;
  }
};

TEST_F(PlotTest, DrawsASmallJob) {
  Write("two.csv",
        "stage,instruction,frequency,time,energy\n"
        "0,forward,1400,0.010,4.0\n0,forward,1200,0.012,3.2\n0,forward,1000,0.015,2.8\n"
        "0,backward,1400,0.020,8.0\n0,backward,1200,0.024,6.4\n0,backward,1000,0.030,5.6\n"
        "1,forward,1400,0.010,4.0\n1,forward,1200,0.012,3.2\n1,forward,1000,0.015,2.8\n"
        "1,backward,1400,0.020,8.0\n1,backward,1200,0.024,6.4\n1,backward,1000,0.030,5.6\n");
  const std::string drawing =
      Plot("plan two.csv --schedule 1f1b --microbatches 2 --blocking-power 80 --per-instruction");
  for (const char* line : {"   │ ✕ maximum frequency\n", "48 ┤ ●⠤⡀\n", " ●⠒⢄⡀ 10 % slowdown\n",
                           "   │  no slowdown\n", " ⠈⠉⠉⠉⠑⠒⠒⠒⠢⠤●\n"}) {
    EXPECT_THAT(drawing, HasSubstr(line)) << drawing;
  }
}

TEST_F(PlotTest, HasExactlyTheGivenWidth) {
  MakeProfile();
  for (const std::size_t width : {40U, 160U}) {
    SetTerminal("C", std::to_string(width).c_str());
    const std::string drawing = Plot(std::string("plan profile.csv --effort 0") + kJob);
    EXPECT_THAT(drawing, Each(AllOf(Not(Lt('\n')), Lt('\x7f'))));
    std::istringstream lines(drawing);
    std::size_t widest = 0;
    for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
    EXPECT_EQ(widest, width) << drawing;
  }
}

TEST_F(PlotTest, WithoutAFrontierAndWithFiles) {
  MakeProfile();
  const std::string plan = std::string("plan profile.csv --no-frontier --effort 0") + kJob;
  EXPECT_THAT(Plot(plan), AllOf(HasSubstr("● plan"), Not(HasSubstr("bound"))));
  EXPECT_THAT(RunWell(plan + "-o out --plot"),
              ContainsRegex("maximum frequency\n[34] files are in out"));
}

TEST_F(PlotTest, IsNotForPrograms) {
  MakeProfile();
  ExpectComplaint(Run("plan profile.csv --plot --json"), 2, "remove one of them");
}

}  // namespace
}  // namespace perseus
