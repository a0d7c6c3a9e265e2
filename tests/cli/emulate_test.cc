// Tests `perseus emulate` and `perseus compare` as a user runs them.
#include <gmock/gmock.h>

#include <algorithm>
#include <regex>
#include <sstream>

#include "tests/cli/program.h"

namespace perseus {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class EmulateTest : public CommandTest {
 protected:
  EmulateTest() { MakeProfile(); }

  // Returns the numbers of a CSV, without its header.
  std::vector<std::vector<double>> RowsOf(const std::string& file) const {
    std::vector<std::vector<double>> rows;
    std::istringstream lines(Read(file));
    std::string line;
    for (std::getline(lines, line); std::getline(lines, line);) {
      std::istringstream cells(line);
      auto& row = rows.emplace_back();
      for (std::string cell; std::getline(cells, cell, ',');) row.push_back(std::stod(cell));
    }
    return rows;
  }

  const std::string job_ =
      "profile.csv --schedule 1f1b --pp-ranks 4 --microbatches 4 --blocking-power 83.64 "
      "--pipelines 3 ";
};

TEST_F(EmulateTest, UnderNoiseItHasIntervals) {
  const std::string command = "emulate " + job_ + "--iterations 40 --noise 2 ";
  const json noisy = RunJson(command + "--json");
  EXPECT_EQ(noisy["format"], "perseus-emulation");
  EXPECT_EQ(noisy["version"], 1);
  const json& noise = noisy.at("noise");
  EXPECT_EQ(noise["independent"], 0.02);
  EXPECT_NEAR(noise["slowdown"], noisy["slowdown"].get<double>(), 1e-9);
  EXPECT_NEAR(noise["saving"], noisy["saving"].get<double>(), 1e-9);
  // The plan has a margin, so it keeps its mean time.
  EXPECT_LE(noise["slowdown"].get<double>(), 5e-4 + noise["slowdown_ci"].get<double>());
  EXPECT_GT(noise["slowdown_ci"].get<double>(), 0);
  EXPECT_GT(noise["saving_ci"].get<double>(), 0);
  EXPECT_THAT(RunWell(command), HasSubstr("Under noise, the mean iteration saves"));
  EXPECT_FALSE(RunJson("emulate " + job_ + "--iterations 2 --json").contains("noise"));
}

// If a whole pp_rank shares noise, this noise does not average out within an iteration.
TEST_F(EmulateTest, HasCommonNoiseAndThatOfTheProfile) {
  const std::string command = "emulate " + job_;
  const auto spread_of = [&](const std::string& noise) {
    RunWell(command + "--iterations 60 -o emu " + noise);
    std::vector<double> times_s;
    for (const auto& row : RowsOf("emu/iterations.csv")) times_s.push_back(row.at(1));
    const auto [least, most] = std::ranges::minmax(times_s);
    return most / least - 1;
  };
  EXPECT_GT(spread_of("--noise 0 --common-noise 2"), 1.5 * spread_of("--noise 2"));
  std::istringstream rows(Read("profile.csv"));
  std::string noisy;
  for (std::string row; std::getline(rows, row);) {
    noisy += row + (noisy.empty() ? ",noise,common_noise\n" : ",0.02,0.005\n");
  }
  Write("profile.csv", noisy);
  const json noise = RunJson(command + "--iterations 5").at("noise");
  EXPECT_NEAR(noise.at("independent"), 0.02, 1e-9);
  EXPECT_NEAR(noise.at("common"), 0.005, 1e-9);
  EXPECT_FALSE(RunJson(command + "--iterations 5 --noise 0").contains("noise"));
}

TEST_F(EmulateTest, WritesIterationsAndRanksWithEqualTotals) {
  Write("events.toml",
        "[[straggler]]\ndp_rank = 1\npp_rank = 2\nfrom = 2\nuntil = 5\nslowdown = 1.5\n");
  const std::string command =
      "emulate " + job_ + "--iterations 8 --events events.toml --follow 1 --trace 3 -o emu";
  RunWell(command);
  EXPECT_THAT(Files("emu"),
              ElementsAre("emulation.json", "iterations.csv", "pp_ranks.csv", "trace.json"));
  const json emulation = json::parse(Read("emu/emulation.json"));
  EXPECT_THAT(emulation["files"], ElementsAre("iterations.csv", "pp_ranks.csv", "trace.json"));
  EXPECT_THAT(
      Read("emu/iterations.csv"),
      StartsWith("iteration,time,energy,average_power,peak_power,slowest_dp_rank,switches\n"));
  const auto iterations = RowsOf("emu/iterations.csv");
  EXPECT_EQ(iterations.size(), 8U);
  double energy_j = 0;
  for (const auto& row : iterations) energy_j += row.at(2);
  EXPECT_NEAR(energy_j, emulation["emulated"]["energy_j"], 1e-6);
  double ranks_j = 0;
  for (const auto& row : RowsOf("emu/pp_ranks.csv")) ranks_j += row.at(4) + row.at(5);
  EXPECT_NEAR(ranks_j, energy_j, 1e-9 * energy_j);
  // The straggler and the other pipelines are different kinds of pipeline.
  EXPECT_THAT(Read("emu/trace.json"), HasSubstr("dp_ranks 0, 2"));
  EXPECT_THAT(Read("emu/trace.json"), HasSubstr("dp_rank 1"));
}

TEST_F(EmulateTest, FilesOfOtherOriginAreNotReplaced) {
  const std::string command = "emulate " + job_ + "--iterations 2 -o out";
  Write("out/emulation.json", R"({"files": ["../profile.csv"]})");
  ExpectComplaint(Run(command), 2, "out/emulation.json: was not written by perseus emulate");
  RunWell("--version; rm -r out");
  RunWell(command);
  const std::vector<std::string> emulated = Files("out");
  ExpectComplaint(Run("plan " + job_ + "-o out"), 2, "out/trace.json: already exists");
  EXPECT_EQ(Files("out"), emulated);
}

TEST_F(EmulateTest, MultipliesThePlanByPipelinesAndIterations) {
  RunWell("plan " + job_ + "--per-instruction --slowdown 5 --stops 0 --no-frontier -o out");
  const json plan = json::parse(Read("out/plans/slowdown-5.json"));
  const json emulation = RunJson("emulate " + job_ + kInstantChanges +
                                 "--iterations 7 --plan out/plans/slowdown-5.json");
  EXPECT_NEAR(emulation["emulated"]["energy_j"], 21 * plan["energy_j"].get<double>(), 1e-6);
  EXPECT_NEAR(emulation["emulated"]["time_s"], 7 * plan["time_s"].get<double>(), 1e-9);
  EXPECT_NEAR(emulation["maximum_frequency"]["energy_j"],
              21 * plan["baseline"]["energy_j"].get<double>(), 1e-6);
}

// The path of a plan is relative to the file of events.
TEST_F(EmulateTest, PushedPlansAndPowerCapsTakeEffect) {
  RunWell("plan " + job_ + "--per-instruction --slowdown 5 --stops 0 -o out");
  const json summary = json::parse(Read("out/summary.json"));
  const double least_w = 3 * summary["plans"].back()["average_power_w"].get<double>();
  Write("out/events.toml",
        "[[plan]]\nfrom = 2\nfile = \"plans/slowdown-5.json\"\n[[power_cap]]\nfrom = 4\nwatts = " +
            std::to_string(least_w * 1.02) + "\n");
  RunWell("emulate " + job_ + "--iterations 6 --events out/events.toml -o emu");
  const auto rows = RowsOf("emu/iterations.csv");
  EXPECT_GT(rows.at(2).at(1), rows.at(1).at(1));
  EXPECT_GT(rows.at(3).at(3), least_w * 1.02);
  EXPECT_LE(rows.at(4).at(3), least_w * 1.02);
}

// A power cap that no clocks meet does not end the run.
TEST_F(EmulateTest, APowerCapThatNoPlanMeetsHasTheNearestPlan) {
  const auto error = Run("plan " + job_ + "--power-cap 1").err;
  std::smatch match;
  ASSERT_TRUE(std::regex_search(error, match, std::regex("the least is ([0-9.]+) W"))) << error;
  const double least_w = 3 * std::stod(match[1]);
  Write("events.toml", "[[power_cap]]\nfrom = 1\nwatts = " + std::to_string(0.9 * least_w) +
                           "\n[[power_cap]]\nfrom = 2\nwatts = 1\n");
  const json emulation = RunJson("emulate " + job_ + "--iterations 3 --events events.toml -o emu");
  ASSERT_EQ(emulation["remarks"].size(), 2);
  EXPECT_THAT(emulation["remarks"][0].get<std::string>(),
              AllOf(HasSubstr("events.toml:1: no plan meets this power cap of "),
                    HasSubstr("to meet the cap, pause it for ")));
  EXPECT_THAT(emulation["remarks"][1].get<std::string>(),
              AllOf(HasSubstr("events.toml:4: "), HasSubstr("even GPUs that only wait draw")));
  const auto rows = RowsOf("emu/iterations.csv");
  EXPECT_NEAR(rows.at(1).at(3), least_w, 1e-3 * least_w);
  EXPECT_EQ(rows.at(2).at(3), rows.at(1).at(3));
  EXPECT_THAT(RunWell("emulate " + job_ + "--iterations 3 --events events.toml --policy allmax"),
              HasSubstr("events.toml:4: no plan meets this power cap"));
}

TEST_F(EmulateTest, BadInputIsOneLine) {
  const std::string command = "emulate " + job_;
  Write("events.toml", "[[straggler]]\ndp_rank = 3\nslowdown = 2\n");
  ExpectComplaint(Run(command + "--events events.toml"), 2,
                  "events.toml:1: dp_rank 3 cannot be slowed down");
  ExpectComplaint(Run(command + "--policy zeus"), 2, "--policy");
  Write("events.toml", "[[plan]]\nfile = \"nowhere.json\"\n");
  ExpectComplaint(Run(command + "--events events.toml"), 2, "events.toml:1: nowhere.json");
  ExpectComplaint(Run(command + "--iterations 5 --trace 5"), 2, "--trace 5 is not one of");
  ExpectComplaint(Run(command + "--trace 3"), 2, "add -o DIR");
  ExpectComplaint(Run(command + "--latency-spread 0.5 --switch-latency 0"), 2,
                  "add --switch-latency MS");
  Write("events.toml", "[[straggler]]\ndp_rank = 0\nfrom = 100\nslowdown = 1.2\n");
  EXPECT_THAT(RunWell(command + "--latency-spread 0.5 --switch-latency 1 --iterations 2 "
                                "--events events.toml"),
              HasSubstr("events.toml:1: this straggler had no effect"));
  ExpectComplaint(Run(command + "--seed -1"), 2, "--seed");
}

TEST_F(EmulateTest, OtherPoliciesHaveTheSameEvents) {
  Write("events.toml", "[[straggler]]\ndp_rank = 0\nfrom = 1\nslowdown = 1.2\n");
  const std::string alone = "emulate " + job_ + "--iterations 4 --events events.toml ";
  const std::string command = alone + "--follow 0 --unit 0.1 ";
  const json ours = RunJson(command);
  EXPECT_EQ(ours["policy"], "Perseus");
  const json without = RunJson(alone);
  EXPECT_LT(ours["emulated"]["energy_j"], without["emulated"]["energy_j"]);
  EXPECT_EQ(ours["emulated"]["time_s"], without["emulated"]["time_s"]);
  for (const auto& [flag, name] : {std::pair{"allmax", "AllMax"},
                                   {"zeus-global", "ZeusGlobal"},
                                   {"zeus-per-stage", "ZeusPerStage"},
                                   {"envpipe", "EnvPipe"},
                                   {"perseus-published", "PerseusPublished"},
                                   {"perseus", "Perseus"}}) {
    const json other = RunJson(command + "--policy " + flag);
    EXPECT_EQ(other["policy"], name);
    EXPECT_EQ(other["maximum_frequency"], ours["maximum_frequency"]);
    if (other["slowdown"] > 0) continue;
    EXPECT_LE(other["saving"].get<double>(), ours["saving"].get<double>() + 1e-9) << flag;
  }
  const json idle = RunJson(command + "--policy allmax");
  EXPECT_EQ(idle["emulated"], idle["maximum_frequency"]);
}

TEST_F(EmulateTest, ASlowdownThatLooksLikePercentGetsAWarning) {
  Write("events.toml", "[[straggler]]\ndp_rank = 0\nslowdown = 20\n");
  const Outcome outcome = Run("emulate " + job_ + "--iterations 2 --events events.toml");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err,
            "perseus: warning: slowdown = 20 means 20 times as long (for 20 % longer, give "
            "slowdown = 1.2)\n");
}

TEST_F(EmulateTest, ComparesInOneFigure) {
  const Outcome drawn =
      Run("compare " + job_ + "--unit 0.1 --straggler 100 --straggler 2.5x --figure frontier.svg");
  if (drawn.status == 1 && drawn.err.find("no figures") != std::string::npos) {
    GTEST_SKIP() << drawn.err;
  }
  ASSERT_EQ(drawn.status, 0) << drawn.err;
  for (const char* policy :
       {"AllMax", "ZeusGlobal", "ZeusPerStage", "EnvPipe", "PerseusPublished"}) {
    EXPECT_THAT(Read("frontier.svg"), HasSubstr(policy));
  }
  EXPECT_THAT(Read("frontier.svg"), HasSubstr("Perseus, no slowdown"));
  EXPECT_THAT(Read("frontier.svg"), HasSubstr("Perseus, straggler of 100 %, 150 %"));
}

}  // namespace
}  // namespace perseus
