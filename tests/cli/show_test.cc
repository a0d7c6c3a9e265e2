// Tests `perseus show`, which prints plans side by side.
#include <gmock/gmock.h>

#include <sstream>

#include "tests/cli/program.h"

namespace perseus {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ShowVerbTest : public CommandTest {
 protected:
  ShowVerbTest() {
    MakeProfile();
    RunWell(
        std::string("plan profile.csv --no-frontier --effort 0 --slowdown 0 --slowdown 10 -o out") +
        kJob);
  }

  const std::string plans_ = "out/plans/no-slowdown.json out/plans/slowdown-10.json";
};

TEST_F(ShowVerbTest, ShowsTheValuesOfTheSummary) {
  const json summary = json::parse(Read("out/summary.json"));
  for (const json& plan : summary["plans"]) {
    const json shown =
        RunJson("show out/plans/" + plan["name"].get<std::string>() + ".json")["plans"][0];
    for (const char* key : {"target", "time_s", "energy_j", "saving", "lower_bound_j", "gap",
                            "switches", "average_power_w"}) {
      EXPECT_EQ(shown.at(key), plan.at(key)) << key;
    }
  }
}

// The test computes the values again from the instructions of the plan.
TEST_F(ShowVerbTest, MeanClocksAndWaitingMatchTheInstructions) {
  const json plan = json::parse(Read("out/plans/slowdown-10.json"));
  const json shown = RunJson("show out/plans/slowdown-10.json")["plans"][0];
  double busy_s = 0;
  double sum_mhz = 0;
  int forwards = 0;
  for (const json& rank : plan["pp_ranks"]) {
    for (const json& instruction : rank["instructions"]) {
      busy_s += instruction["duration_s"].get<double>();
      if (instruction["kind"] != "forward" || instruction["stage"] != 1) continue;
      sum_mhz += instruction["frequency"].get<double>();
      ++forwards;
    }
  }
  EXPECT_GT(forwards, 0);
  EXPECT_DOUBLE_EQ(shown["mean_frequency_mhz"]["stage 1 forward"].get<double>(),
                   sum_mhz / forwards);
  const double ranks = static_cast<double>(plan["pp_ranks"].size());
  EXPECT_NEAR(shown["waiting"].get<double>(), 1 - busy_s / (ranks * shown["time_s"].get<double>()),
              1e-12);
}

// Long paths and targets do not widen the columns, which are numbered.
TEST_F(ShowVerbTest, PutsPlansSideBySide) {
  const std::string table = RunWell("show " + plans_);
  EXPECT_THAT(table, HasSubstr("\nstage 0 backward "));
  EXPECT_THAT(table, Not(HasSubstr("different jobs")));
  EXPECT_THAT(table, HasSubstr(" 1  out/plans/no-slowdown.json: no slowdown"));
  EXPECT_THAT(table, HasSubstr(" 2  out/plans/slowdown-10.json: 10 % slowdown"));
  std::istringstream lines(table.substr(table.find("\n\n") + 2));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 50u) << line;
}

TEST_F(ShowVerbTest, ReportsPlansOfDifferentJobs) {
  RunWell(
      "plan profile.csv --no-frontier --slowdown 0 --schedule gpipe --microbatches 3 "
      "--blocking-power 80 -o other");
  EXPECT_THAT(RunWell("show other/plans/no-slowdown.json out/plans/no-slowdown.json"),
              HasSubstr("different jobs"));
}

// The plans are in the order of their times.
TEST_F(ShowVerbTest, ADirectoryStandsForItsPlans) {
  RunWell(std::string("plan profile.csv --no-frontier --slowdown 2 --slowdown 10 --min-energy ") +
          "--slowdown 0 -o many" + kJob);
  const json shown = RunJson("show many")["plans"];
  std::vector<std::string> files;
  for (const json& plan : shown) {
    files.push_back(plan["file"]);
    EXPECT_EQ(plan["switches_per_gpu"].get<double>() * 4, plan["switches"].get<double>());
  }
  EXPECT_THAT(files, ElementsAre("many/plans/no-slowdown.json", "many/plans/slowdown-2.json",
                                 "many/plans/slowdown-10.json", "many/plans/least-energy.json"));
  ExpectComplaint(Run("show ."), 2, ".: has no summary.json");
}

}  // namespace
}  // namespace perseus
