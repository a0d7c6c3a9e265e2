#include "perseus/cli/terminal_plot.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

#include "tests/support/planning_jobs.h"

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

// Requires text without characters that are two columns wide.
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

// Only the lines of the plot, without title, axis and legend.
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
  EXPECT_EQ(WithoutEscapes(DrawFrontier(SmallPlot(), kColor)), drawing);
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

TEST(DrawFrontierTest, UnitsGetPrefixesIfNumbersAreLong) {
  const auto scaled = [](double times, double energies) {
    FrontierPlot plot = SmallPlot();
    for (PlotPoint& point : plot.bound)
      point = {point.time_s * times, point.energy_j * energies, ""};
    for (PlotPoint& point : plot.plans)
      point = {point.time_s * times, point.energy_j * energies, ""};
    plot.baseline = {plot.baseline.time_s * times, plot.baseline.energy_j * energies, ""};
    return DrawFrontier(plot, kTerminalPlotUtf8);
  };
  EXPECT_THAT(scaled(1e-3, 1e4), AllOf(HasSubstr("(ms)"), HasSubstr("(kJ)"), HasSubstr("\n600 ┤")));
  EXPECT_THAT(scaled(1e-6, 1e-6), AllOf(HasSubstr("(µs)"), HasSubstr("(µJ)")));
  EXPECT_THAT(scaled(1e3, 1e9), AllOf(HasSubstr("(s)"), HasSubstr("(GJ)"), HasSubstr(" 3000")));
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

profile::Option MakeOption(double frequency_mhz, double time_s) {
  profile::Option option;
  option.frequency_mhz = frequency_mhz;
  option.time = ToNanoseconds(time_s);
  option.energy_j = 4;
  return option;
}

// A forward of 10 or 20 s on one pp_rank, then a fixed instruction of 20 s on the other.
schedule::InstructionGraph SmallGraph() {
  schedule::InstructionGraph graph;
  graph.option_sets.resize(2);
  graph.option_sets[0].kind = InstructionKind::kForward;
  graph.option_sets[0].options = {MakeOption(1400, 10), MakeOption(1000, 20)};
  graph.option_sets[1].kind = InstructionKind::kOptimizer;
  graph.option_sets[1].options = {MakeOption(0, 20)};
  graph.instructions = {{.option_set = 0, .pp_rank = 0}, {.option_set = 1, .pp_rank = 1}};
  graph.dependencies = {{.from = 0, .to = 1}};
  graph.pp_rank_orders = {{0}, {1}};
  graph.pp_rank_names = {"gpu \x1b[31m", "the other of the two"};
  return graph;
}

report::Timeline TimelineOf(const schedule::InstructionGraph& graph, std::vector<int> options,
                            std::string name) {
  plan::Evaluation evaluation = plan::Evaluator(graph, {}).Evaluate(options);
  return {std::move(name), std::move(options), std::move(evaluation)};
}

TEST(DrawTimelinesTest, DrawsClocksWaitingAndAnyNames) {
  const schedule::InstructionGraph graph = SmallGraph();
  const report::Timeline timelines[] = {TimelineOf(graph, {0, 0}, "fast"),
                                        TimelineOf(graph, {1, 0}, "slow")};
  EXPECT_EQ(DrawTimelines(graph, timelines, {.width = 57}), R"(timeline, fast
gpu ?[31m        F#########....................
the other of t.. ..........O~~~~~~~~~~~~~~~~~~~

timeline, slow
gpu ?[31m        F-------------------....................
the other of t.. ....................O~~~~~~~~~~~~~~~~~~~
                 +---------+---------+---------+--------+
                 0        10        20        30       40
                                                 time (s)
F forward begins   O other instruction begins   . waiting
# at 1300-1400 MHz   = at 1200-1300 MHz
+ at 1100-1200 MHz   - at 1000-1100 MHz
~ fixed instruction
)");
}

TEST(DrawTimelinesTest, EveryKindHasALetterOrAColor) {
  constexpr InstructionKind kKinds[] = {InstructionKind::kForward, InstructionKind::kRecompute,
                                        InstructionKind::kBackwardInput,
                                        InstructionKind::kBackwardWeight};
  schedule::InstructionGraph graph;
  graph.pp_rank_orders.emplace_back();
  graph.pp_rank_names = {"pp_rank 0"};
  for (int i = 0; i < 4; ++i) {
    graph.option_sets.push_back({.name = "", .kind = kKinds[i], .options = {MakeOption(1400, 11)}});
    graph.instructions.push_back({.option_set = i, .pp_rank = 0});
    graph.pp_rank_orders[0].push_back(i);
    if (i > 0) graph.dependencies.push_back({.from = i - 1, .to = i});
  }
  const report::Timeline timelines[] = {TimelineOf(graph, {0, 0, 0, 0}, "plan")};
  EXPECT_THAT(DrawTimelines(graph, timelines, {.width = 54}),
              AllOf(HasSubstr("pp_rank 0 F##########R##########B##########W##########\n"),
                    HasSubstr("\nW weight gradient begins   R recompute begins\n"),
                    HasSubstr("\n# at 1400 MHz\n")));
  EXPECT_THAT(DrawTimelines(graph, timelines, {.width = 54, .color = true}),
              AllOf(HasSubstr("pp_rank 0 \x1b[36m###########\x1b[35m###########\x1b[33m###########"
                              "\x1b[32m###########\x1b[0m\n"),
                    HasSubstr("\x1b[33m#\x1b[0m backward   \x1b[32m#\x1b[0m weight gradient")));
}

TEST(DrawTimelinesTest, InstructionsShorterThanAColumnShowTheirClocks) {
  schedule::InstructionGraph graph = SmallGraph();
  graph.option_sets[1] = graph.option_sets[0];
  graph.option_sets[1].kind = InstructionKind::kBackward;
  graph.instructions.clear();
  graph.pp_rank_orders[0].clear();
  graph.pp_rank_names[0] = "pp_rank 0";
  graph.pp_rank_names[1] = "pp_rank 1";
  std::vector<int> options;
  for (int i = 0; i < 200; ++i) {  // 100 forwards of 10 s, then 50 backwards each of 10 and 20 s.
    graph.instructions.push_back({.option_set = i < 100 ? 0 : 1, .pp_rank = 0});
    graph.pp_rank_orders[0].push_back(i);
    options.push_back(i < 150 ? 0 : 1);
    if (i > 0) graph.dependencies.push_back({.from = i - 1, .to = i});
  }
  graph.dependencies.erase(graph.dependencies.begin());  // The dependency of the small graph.
  graph.pp_rank_orders[1].clear();
  const report::Timeline timelines[] = {TimelineOf(graph, options, "plan")};
  EXPECT_THAT(DrawTimelines(graph, timelines, {.width = 60}),
              AllOf(HasSubstr("pp_rank 0 F" + std::string(19, '#') + 'B' + std::string(9, '#') +
                              std::string(20, '-') + '\n'),
                    HasSubstr("F mostly forward   B mostly backward")));
}

TEST(DrawTimelinesTest, DrawsTheFirstAndTheLastOfManyPpRanks) {
  const schedule::InstructionGraph graph = MakeSyntheticJob({.stages = 20, .microbatches = 20});
  const report::Timeline timelines[] = {
      TimelineOf(graph, schedule::BaselineOptions(graph), "baseline")};
  const std::string drawing = DrawTimelines(graph, timelines, kTerminalPlotUtf8);
  for (int rank = 0; rank < 20; ++rank) {
    EXPECT_EQ(Count(drawing, fmt::format("\npp_rank {} ", rank)), rank < 8 || rank >= 12 ? 1 : 0)
        << drawing;
  }
  EXPECT_THAT(drawing, HasSubstr("(4 more pp_ranks, not drawn)"));
}

TEST(DrawTimelinesTest, FitsEveryTerminal) {
  for (const std::string schedule : {"1f1b", "gpipe"}) {
    const schedule::InstructionGraph graph = MakeSyntheticJob({.schedule = schedule});
    std::vector<int> slowest;
    for (std::size_t i = 0; i < graph.instructions.size(); ++i) {
      slowest.push_back(static_cast<int>(graph.options_of(static_cast<int>(i)).options.size()) - 1);
    }
    const report::Timeline timelines[] = {
        TimelineOf(graph, schedule::BaselineOptions(graph), "baseline"),
        TimelineOf(graph, slowest, "a name of some length, of a plan")};
    for (const Terminal& terminal : AllTerminals()) {
      const std::string drawing = DrawTimelines(graph, timelines, terminal);
      ExpectFits(drawing, terminal);
      for (const std::string& name : graph.pp_rank_names) {
        EXPECT_EQ(Count(drawing, '\n' + name + ' '), 2) << drawing;
      }
      EXPECT_EQ(Count(drawing, "MHz"), 4) << drawing;
    }
  }
}

}  // namespace
}  // namespace perseus::cli
