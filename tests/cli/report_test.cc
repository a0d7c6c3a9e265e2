// Tests `perseus report`, and the flags --figure and --overlay of `perseus plan`.
#include <gmock/gmock.h>

#include "tests/cli/program.h"

namespace perseus {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class ReportVerbTest : public CommandTest {
 protected:
  void SetUp() override {
    MakeProfile();
    RunWell(plan_ + "--stops 2 --slowdown 3 -o out");
    if (!HasPage()) GTEST_SKIP() << "this build has no page (no npm)";
  }

  bool HasPage() const { return Files("out") != Results("out"); }

  const std::string plan_ =
      "plan profile.csv --schedule 1f1b --pp-ranks 4 --microbatches 3 --blocking-power 83.64 "
      "--per-instruction ";
};

TEST_F(ReportVerbTest, MakesTheSamePageAsPlan) {
  RunWell("report out --show slowdown-3 -o again.html");
  const json ours = DataOf("again.html");
  const json theirs = DataOf("out/report.html");
  EXPECT_EQ(ours["plans"], theirs["plans"]);
  EXPECT_EQ(ours["baseline"], theirs["baseline"]);
  EXPECT_EQ(ours["option_sets"], theirs["option_sets"]);
  EXPECT_EQ(ours["job"], theirs["job"]);
  EXPECT_EQ(ours["plans"][ours["chosen"].get<std::size_t>()]["name"], "slowdown-3");
  EXPECT_EQ(ours["chosen"], theirs["chosen"]);
  EXPECT_EQ(ours["plans"].size(), Files("out/plans").size());
  for (const json& plan : theirs["plans"]) {
    const json file = json::parse(Read("out/plans/" + plan["name"].get<std::string>() + ".json"));
    for (const char* key : {"energy_j", "lower_bound_j", "target"}) EXPECT_EQ(plan[key], file[key]);
    EXPECT_DOUBLE_EQ(plan["time_ns"].get<double>() / 1e9, file["time_s"]);
  }
  // The files contain every nanosecond and every bit.
  EXPECT_EQ(ours["frontier"], theirs["frontier"]);
}

TEST_F(ReportVerbTest, StopsAreOnlyOnTheSlider) {
  const std::string table = RunWell(plan_ + "--stops 12 -o more");
  const json slider = DataOf("more/report.html")["plans"];
  RunWell(plan_ + "--stops 0 -o fewer");
  EXPECT_GT(slider.size(), DataOf("fewer/report.html")["plans"].size() + 2);
  EXPECT_EQ(slider.size(), Files("more/plans").size());
  // The last line names the directory, and counts its files.
  const auto without_last_line = [](const std::string& text) {
    return text.substr(0, text.rfind('\n', text.size() - 2));
  };
  EXPECT_EQ(without_last_line(table), without_last_line(RunWell(plan_ + "-o again")));
}

TEST_F(ReportVerbTest, DrawsTheSameFiguresAsPlan) {
  RunWell("report out --show no-slowdown --figure a-timeline.svg --figure a-profile.svg");
  RunWell(plan_ + "--figure b-timeline.svg --figure b-profile.svg");
  EXPECT_THAT(Read("a-timeline.svg"), HasSubstr("<svg xmlns"));
  EXPECT_EQ(Read("a-timeline.svg"), Read("b-timeline.svg"));
  EXPECT_EQ(Read("a-profile.svg"), Read("b-profile.svg"));
}

TEST_F(ReportVerbTest, DrawsOverlays) {
  Write("published.csv", "time,energy\n1.9,2000\n2.0,1900\n");
  RunWell(plan_ +
          "--figure frontier.svg --overlay as\\ published=published.csv "
          "--overlay out/frontier.csv");
  EXPECT_THAT(Read("frontier.svg"), HasSubstr("as published"));
  EXPECT_THAT(Read("frontier.svg"), HasSubstr("out/frontier.csv"));
  RunWell("report out -o with.html --overlay published.csv --overlay other=out/frontier.csv");
  const json overlays = DataOf("with.html")["overlays"];
  ASSERT_EQ(overlays.size(), 2U);
  EXPECT_EQ(overlays[0]["energy_j"], (json{2000.0, 1900.0}));
  EXPECT_EQ(overlays[1]["time_s"], DataOf("with.html")["frontier"]["time_s"]);
}

TEST_F(ReportVerbTest, BadInputIsOneLineAndWritesNothing) {
  const std::string plans = "report out/plans/no-slowdown.json ";
  ExpectComplaint(Run("report out"), 2, "the output is missing");
  ExpectComplaint(Run("report out/plans -o r.html"), 2, "out/plans: has no summary.json");
  ExpectComplaint(Run("report out --show x -o r.html"), 2, "no plan has this name");
  ExpectComplaint(Run("report out --figure picture.svg"), 2, "is not the name of a figure");
  ExpectComplaint(Run("report out --overlay no.csv -o r.html"), 2, "no.csv");
  Write("bad.csv", "time,energy\n1,x\n");
  ExpectComplaint(Run("report out --overlay bad.csv -o r.html"), 2, "bad.csv:2: energy \"x\"");
  ExpectComplaint(Run(plan_ + "--overlay bad.csv -o out2"), 2, "bad.csv:2: energy \"x\"");

  // The profile differs from the profile of the plan.
  RunWell("synth --gpu a100 --stages 4 --seed 7 -o other.csv");
  ExpectComplaint(Run(plans + "--profile other.csv -o r.html"), 2, "out/plans/no-slowdown.json");
  RunWell("--version; mv profile.csv moved.csv");
  ExpectComplaint(Run(plans + "-o r.html"), 2,
                  "its profile profile.csv does not exist (give its path with");
  RunWell(plans + "--profile moved.csv --figure timeline.svg");
  EXPECT_THAT(Files("."), Not(Contains("r.html")));
  EXPECT_THAT(Files("."), Not(Contains("out2/summary.json")));
}

TEST_F(ReportVerbTest, PlansOfTwoJobsAreRefused) {
  RunWell(
      "plan profile.csv --schedule 1f1b --pp-ranks 4 --microbatches 3 --blocking-power 50 -o b");
  ExpectComplaint(Run("report out/plans/no-slowdown.json b/plans/no-slowdown.json -o r.html"), 2,
                  "b/plans/no-slowdown.json: has ");
}

TEST_F(ReportVerbTest, ReportsAGeneralGraphWithAnyNames) {
  Write("work.json", R"({"instructions": [
     {"name": "</script><script>alert(1)</script>", "resource": "<b>gpu",
      "options": [{"frequency": 1410, "time": 0.05, "energy": 23.8},
                  {"frequency": 1200, "time": 0.06, "energy": 20.1},
                  {"frequency": 1000, "time": 0.07, "energy": 19.1}]},
     {"name": "b", "resource": "other", "options": [{"time": 0.08, "energy": 5}]}],
    "blocking_power": 80})");
  RunWell("plan --graph work.json -o graph");
  EXPECT_EQ(DataOf("graph/report.html")["pp_ranks"][0]["name"], "<b>gpu");
  EXPECT_THAT(Read("graph/report.html"), Not(HasSubstr("<b>gpu")));
  RunWell("report graph -o again.html --figure timeline.svg --figure profile.svg");
  EXPECT_EQ(DataOf("again.html")["plans"], DataOf("graph/report.html")["plans"]);
  EXPECT_THAT(Read("timeline.svg"), Not(HasSubstr("<b>")));
  EXPECT_THAT(Read("profile.svg"), Not(HasSubstr("<script>")));
  // Two options have no fit. The path of the fit must not become an attribute without a value.
  EXPECT_THAT(Read("profile.svg"), Not(HasSubstr("<path d ")));
}

TEST_F(ReportVerbTest, DrawsForPaper) {
  RunWell("report out --figure timeline=a=b.svg --figure frontier.svg --figure-width 8.4cm");
  EXPECT_THAT(Read("a=b.svg"), HasSubstr("<title>One iteration</title>"));
  EXPECT_THAT(Read("frontier.svg"), HasSubstr("width=\"84mm\""));
  for (const char* width : {"84", "8mm", "mm", "2000mm", "84px"}) {
    ExpectComplaint(Run(std::string("report out --figure frontier.svg --figure-width ") + width), 2,
                    "is not a width (expected 50mm to 1000mm");
  }
  ExpectComplaint(Run("report out --figure timeline=picture.png"), 2, "is not an SVG");
  ExpectComplaint(Run("report out --figure pie=picture.svg"), 2, "is not the name of a figure");
}

}  // namespace
}  // namespace perseus
