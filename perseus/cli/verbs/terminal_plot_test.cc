#include "perseus/cli/verbs/terminal_plot.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

namespace perseus::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Terminal kTerminalPlotUtf8{.width = 80, .color = false, .unicode = true};
constexpr Terminal kColor{.width = 80, .color = true, .unicode = true};

int Count(std::string_view text, std::string_view what) {
  int count = 0;
  for (std::size_t at = text.find(what); at != std::string_view::npos;
       at = text.find(what, at + what.size())) {
    ++count;
  }
  return count;
}

std::string WithoutEscapes(std::string text) {
  for (std::size_t at = text.find('\x1b'); at != std::string::npos; at = text.find('\x1b')) {
    text.erase(at, text.find('m', at) - at + 1);
  }
  return text;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Returns the number of columns. Requires text without characters that are two columns wide.
int ColumnsOf(const std::string& line) {
  return static_cast<int>(std::count_if(line.begin(), line.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  }));
}

void ExpectFits(const std::string& text, const Terminal& terminal) {
  for (const std::string& line : LinesOf(WithoutEscapes(text))) {
    EXPECT_LE(ColumnsOf(line), terminal.width) << line;
  }
  EXPECT_TRUE(text.ends_with('\n'));
  if (!terminal.color) {
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
  }
  if (!terminal.unicode) {
    EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return c > 0; })) << text;
  }
}

std::vector<Terminal> AllTerminals() {
  std::vector<Terminal> terminals;
  for (int width = kNarrowest; width <= kWidest; width += 13) {
    for (const bool color : {false, true}) {
      for (const bool unicode : {false, true}) terminals.push_back({width, color, unicode});
    }
  }
  return terminals;
}

// Returns only the lines of the plot, without title, axis and legend.
std::string Inside(const std::string& drawing) {
  std::string inside;
  for (const std::string& line : LinesOf(drawing)) {
    if (line.find("└") != std::string::npos) break;
    inside += line + '\n';
  }
  return inside;
}

FrontierPlot SmallPlot() {
  return {
      .bound = {{2, 50, ""}, {2.2, 44, ""}, {3, 40, ""}},
      .plans = {{2, 51, "no slowdown"}, {2.2, 44.5, "10 % slowdown"}, {3, 40.1, "least energy"}},
      .baseline = {2, 60, "maximum frequency"}};
}

TEST(DrawFrontierTest, MarksEveryPlanAndTheBaseline) {
  const std::string drawing = DrawFrontier(SmallPlot(), kTerminalPlotUtf8);
  EXPECT_EQ(Count(Inside(drawing), "●"), 3) << drawing;
  EXPECT_EQ(Count(Inside(drawing), "✕"), 1) << drawing;
  for (const char* text :
       {"✕ maximum frequency", "no slowdown", "10 % slowdown", "least energy", "(J)",
        "iteration time (s)", "bound: no plan is below", "60 ┤", " 2.4 "}) {
    EXPECT_THAT(drawing, HasSubstr(text));
  }
  ExpectFits(drawing, kTerminalPlotUtf8);
  const std::string colored = DrawFrontier(SmallPlot(), kColor);
  EXPECT_EQ(WithoutEscapes(colored), drawing);
  EXPECT_THAT(colored, AllOf(HasSubstr("\x1b[31m✕\x1b[0m maximum frequency"),
                             HasSubstr("\x1b[32m●\x1b[0m plan ")));
}

TEST(DrawFrontierTest, DrawsPlansWithoutAFrontier) {
  FrontierPlot plot = SmallPlot();
  plot.bound.clear();
  const std::string drawing = DrawFrontier(plot, kTerminalPlotUtf8);
  EXPECT_EQ(Count(Inside(drawing), "●"), 3) << drawing;
  EXPECT_THAT(drawing, Not(HasSubstr("bound")));
  for (const char* braille : {"⠉", "⠤", "⣀", "⠒"}) EXPECT_THAT(drawing, Not(HasSubstr(braille)));
}

TEST(DrawFrontierTest, ABaselineSlowerThanTheFrontierIsInside) {
  FrontierPlot plot = SmallPlot();
  plot.baseline.time_s = 4;
  const std::string drawing = DrawFrontier(plot, kTerminalPlotUtf8);
  EXPECT_EQ(Count(Inside(drawing), "✕"), 1) << drawing;
  EXPECT_THAT(drawing, AllOf(HasSubstr(" 4.0"), HasSubstr("maximum frequency ✕\n")));
}

TEST(DrawFrontierTest, DrawsASinglePointInTheMiddle) {
  const FrontierPlot plot{.bound = {{2, 50, ""}},
                          .plans = {{2, 50, "no slowdown"}},
                          .baseline = {2, 50, "maximum frequency"}};
  const std::string drawing = DrawFrontier(plot, kTerminalPlotUtf8);
  EXPECT_EQ(Count(Inside(drawing), "⊗"), 1) << drawing;
  EXPECT_THAT(drawing, AllOf(HasSubstr("⊗ plan and maximum frequency"), Not(HasSubstr("●")),
                             Not(HasSubstr("✕")), HasSubstr("\n50.00 ┤")));
}

TEST(DrawFrontierTest, FitsEveryTerminalWithAnyNumbers) {
  for (const double times : {1e-9, 1e-6, 1.0, 1.23e9}) {
    for (const double energies : {1e-300, 1e-12, 1.0, 1e18, 1e30}) {
      for (const double range : {0.0, 1e-12, 1.0}) {
        FrontierPlot plot;
        for (int i = 0; i <= 20; ++i) {
          const PlotPoint point{times * (1 + range * i), energies * (1 + range / (1 + i)),
                                fmt::format("{} % slowdown, of a long name", i)};
          plot.bound.push_back(point);
          if (i % 5 == 0) plot.plans.push_back(point);
        }
        plot.baseline = {times, energies * 3, "maximum frequency"};
        for (const Terminal& terminal : AllTerminals()) {
          ExpectFits(DrawFrontier(plot, terminal), terminal);
        }
      }
    }
  }
}

TEST(DrawFrontierTest, DrawsInAscii) {
  const std::string drawing = DrawFrontier(SmallPlot(), {.width = 40});
  EXPECT_EQ(drawing, R"(energy of one pipeline's iteration (J)
60 + X maximum frequency
   |
   |
   |
55 +
   |
   |
50 + o no slowdown
   | '.
   |  ':
   |    '.
45 +     ': 10 % slowdown
   |       o...
   |           '''':....  least energy
   |                    '''':....
40 +                             '''':o
   +-+----------------+---------------+-
    2.0              2.5             3.0
                      iteration time (s)
.. bound: no plan is below   o plan
X maximum frequency
)");
}

}  // namespace
}  // namespace perseus::cli
