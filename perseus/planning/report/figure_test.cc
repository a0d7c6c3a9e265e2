#include "perseus/planning/report/figure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/planning/report/report.h"
#include "tests/support/planning_jobs.h"

namespace perseus::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(FigureOf, KnowsNames) {
  EXPECT_EQ(FigureOf("frontier.svg").value(), FigureKind::kFrontier);
  EXPECT_EQ(FigureOf("gpt3_switches.svg").value(), FigureKind::kSwitches);
  EXPECT_EQ(FigureOf("out.d/bloom-timeline.svg").value(), FigureKind::kTimeline);
  for (const char* name : {"", "frontier", "frontier.gif", "frontier.pdf", "figure.svg",
                           "myfrontier.svg", "frontier.svg/figure.png", ".svg"}) {
    const auto figure = FigureOf(name);
    ASSERT_FALSE(figure) << name;
    EXPECT_THAT(figure.error().Message(), HasSubstr("frontier.svg, timeline.svg or profile.svg"));
  }
}

// Checks the XML rules that a drawing needs: closed tags, attributes with a quoted value, and no
// character that XML forbids.
class XmlReader {
 public:
  explicit XmlReader(std::string_view xml) : rest_(xml) {}

  testing::AssertionResult Read() {
    for (const char c : rest_) {
      if (static_cast<unsigned char>(c) < 0x20 && c != '\n') return Failure("a control character");
    }
    rest_.remove_prefix(std::min(rest_.find("?>") + 2, rest_.size()));
    std::vector<std::string_view> open;
    while (SkipTo('<')) {
      const bool is_end = Take("/");
      const std::string_view name = Word();
      if (name.empty()) return Failure("a tag without a name");
      while (Take(" ")) {
        if (Word().empty() || !Take("=\"")) return Failure("an attribute without a value");
        if (rest_.substr(0, rest_.find('"')).find('<') != rest_.npos)
          return Failure("< in a value");
        if (!SkipTo('"')) return Failure("a value that does not end");
      }
      const bool is_empty = Take("/");
      if (!Take(">")) return Failure("a tag that does not end");
      if (is_end) {
        if (open.empty() || open.back() != name) return Failure("the end of another tag");
        open.pop_back();
      } else if (!is_empty) {
        open.push_back(name);
      }
    }
    return open.empty() ? testing::AssertionSuccess() : Failure("a tag without an end");
  }

 private:
  testing::AssertionResult Failure(std::string_view what) const {
    return testing::AssertionFailure() << what << " before " << rest_.substr(0, 80);
  }
  bool Take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  bool SkipTo(char c) {
    const std::size_t at = rest_.find(c);
    if (at == rest_.npos) return false;
    rest_.remove_prefix(at + 1);
    return true;
  }
  std::string_view Word() {
    std::size_t size = 0;
    while (size < rest_.size() && (std::isalnum(static_cast<unsigned char>(rest_[size])) != 0 ||
                                   rest_[size] == '-' || rest_[size] == ':')) {
      ++size;
    }
    const std::string_view word = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return word;
  }

  std::string_view rest_;
};

class DrawFigureTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasReportPage()) GTEST_SKIP() << "this build has no figures (no npm)";
    schedule::InstructionGraph graph = MakeSyntheticJob({.stages = 2, .microbatches = 3});
    graph.pp_rank_names[1] = "<b>&\"\x01\xef\xbf\xbf";
    // This profile has too few options for a fit.
    auto& options = graph.option_sets[0].options;
    options.erase(options.begin() + 1, options.end() - 1);
    const plan::Planner planner = MakePlanner(std::move(graph));
    Report report{.planner = planner,
                  .job = {},
                  .frontier = {"bound", planner.ComputeFrontier()->points},
                  .plans = {},
                  .overlays = {{"a < b", {{1'000'000'000, 900}, {1'100'000'000, 800}}}}};
    report.plans.push_back({"fast", *planner.PlanFor(planner.baseline().time)});
    report.switch_tradeoff =
        SwitchTradeoff{"no slowdown", {{0, {}, {}}, {2, {}, 0.115}, {4, 0.082, 0.12}}, 0.125};
    data_ = *FormatReportData(report);
  }

  std::string Draw(FigureKind kind, double width_mm = 0) const {
    const auto svg = DrawFigure(kind, data_, width_mm);
    EXPECT_TRUE(svg) << svg.error().Message();
    EXPECT_THAT(*svg, StartsWith("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns="));
    EXPECT_TRUE(XmlReader(*svg).Read());
    EXPECT_THAT(*svg, Not(HasSubstr("NaN")));
    EXPECT_THAT(*svg, Not(HasSubstr("undefined")));
    return *svg;
  }

  std::string data_;
};

TEST_F(DrawFigureTest, DrawsTheFrontierAndOtherFrontiers) {
  const std::string svg = Draw(FigureKind::kFrontier);
  EXPECT_THAT(svg, HasSubstr("iteration time (s)"));
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
}

TEST_F(DrawFigureTest, DrawsEveryInstructionAndEscapesNames) {
  const std::string svg = Draw(FigureKind::kTimeline);
  EXPECT_THAT(svg, HasSubstr("&lt;b>&amp;"));
  EXPECT_THAT(svg, Not(HasSubstr("<b>")));
  // Backwards are wide enough for their names: three microbatches, two pp_ranks, two iterations.
  std::size_t backwards = 0;
  for (std::size_t at = svg.find(">B"); at != svg.npos; at = svg.find(">B", at + 1)) ++backwards;
  EXPECT_EQ(backwards, 12U);
}

TEST_F(DrawFigureTest, DrawsAPanelForEachStageAndKind) {
  const std::string svg = Draw(FigureKind::kProfile);
  for (const char* name : {"stage 0 forward", "stage 0 backward", "stage 1 forward"}) {
    EXPECT_THAT(svg, HasSubstr(name));
  }
}

// For two of the three limits, no plan was found. For one of these two, none is possible.
TEST_F(DrawFigureTest, DrawsWhatLimitsOfClockChangesSave) {
  const std::string svg = Draw(FigureKind::kSwitches);
  EXPECT_THAT(svg, HasSubstr("most clock changes of a GPU"));
  EXPECT_THAT(svg, HasSubstr(">8.2<"));
  EXPECT_THAT(svg, HasSubstr(">12.5<"));
  EXPECT_THAT(svg, HasSubstr("no slowdown"));
}

// The bounds of schedules with split backwards are unknown.
TEST_F(DrawFigureTest, DrawsSchedulesWithoutBounds) {
  const plan::Planner planner = MakePlanner(MakeSyntheticJob({.stages = 2, .microbatches = 3}));
  const plan::Plan plan = *planner.PlanFor(planner.baseline().time);
  constexpr const char* kHostile = "a & b < c > d \"e\" \x02";
  Report report{.planner = planner,
                .job = {},
                .frontier = {},
                .plans = {{kHostile, plan}},
                .overlays = {{kHostile, {}}}};
  report.switch_tradeoff = SwitchTradeoff{kHostile, {{2, {}, {}}}, 0.125};
  const ScheduleRow row{.name = kHostile, .in_flight = {2, 1}, .saving = 0.1};
  report.schedule_tradeoff = ScheduleTradeoff{.reference = kHostile,
                                              .unit = "GiB",
                                              .memory_source = kHostile,
                                              .rows = {row, row},
                                              .timelines = {{kHostile, planner, plan}},
                                              .conclusion = kHostile};
  data_ = *FormatReportData(report);
  for (const FigureKind kind :
       {FigureKind::kFrontier, FigureKind::kTimeline, FigureKind::kProfile, FigureKind::kSwitches,
        FigureKind::kMemory, FigureKind::kOrders, FigureKind::kSchedules}) {
    Draw(kind);
    Draw(kind, 84);
  }
}

TEST_F(DrawFigureTest, RefusesDataThatIsNotAReport) {
  const auto figure = DrawFigure({}, "{\"format\":");
  ASSERT_FALSE(figure);
  EXPECT_THAT(figure.error().Message(), HasSubstr("cannot be drawn"));
}

}  // namespace
}  // namespace perseus::report
