// Tests `perseus plan --noise`: margins, also within limits of clock changes, and the bounds
// of these plans.
#include <gmock/gmock.h>

#include <sstream>

#include "tests/cli/program.h"

namespace perseus {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class PlanNoiseTest : public CommandTest {
 protected:
  PlanNoiseTest() { MakeProfile(); }

  const std::string plan_ = std::string("plan profile.csv") + kJob;
};

TEST_F(PlanNoiseTest, MoreEffortIsNeverWorseUnderNoise) {
  const std::string plan = plan_ + "--per-instruction --no-frontier --noise 1 --slowdown 3 ";
  const json once = RunJson(plan + "--effort 1")["noise"]["plans"];
  const json more = RunJson(plan + "--effort 3")["noise"]["plans"];
  ASSERT_EQ(more.size(), once.size());
  for (std::size_t i = 0; i < once.size(); ++i) {
    EXPECT_GE(more[i]["saving"], once[i]["saving"]) << once[i]["name"];
  }
}

TEST_F(PlanNoiseTest, AMarginForNoiseKeepsTheLimitOfClockChanges) {
  for (const std::string limit :
       {"", "--max-switches auto", "--max-switches 4", "--max-switches 0"}) {
    SCOPED_TRACE(limit);
    const json summary =
        RunJson(plan_ + "--no-frontier --effort 0 --slowdown 5 --noise 1 " + limit);
    ASSERT_TRUE(summary.contains("max_switches"));
    const json& plans = summary["plans"];
    for (std::size_t i = 0; i < plans.size(); ++i) {
      EXPECT_EQ(plans[i].at("max_switches"), summary["max_switches"]);
      EXPECT_LE(plans[i].at("switches_per_gpu"), summary["max_switches"]);
      EXPECT_LE(plans[i].at("time_s"), plans[i].at("deadline_s"));
      const json& noisy = summary["noise"]["plans"][i];
      const double allowed = noisy.at("name") == "no-slowdown" ? 0 : 0.05;
      EXPECT_LE(noisy.at("slowdown").get<double>(),
                allowed + 5e-4 + noisy.at("slowdown_ci").get<double>());
      EXPECT_LE(noisy.at("saving"), noisy.at("most_saving"));
    }
  }
}

TEST_F(PlanNoiseTest, TheBoundUnderNoiseKnowsTheLimitOfClockChanges) {
  const std::string plan = plan_ + "--no-frontier --noise 1 ";
  const auto most_of = [](const json& noise) {
    return noise.at("plans")[0].at("most_saving").get<double>();
  };
  const json limited = RunJson(plan + "--max-switches 2 -o out").at("noise");
  const json any = RunJson(plan + "--per-instruction").at("noise");
  EXPECT_LT(most_of(limited), most_of(any) - 0.01);
  EXPECT_GE(most_of(limited), limited["plans"][0].at("saving"));
  // The report of the directory must have the same bound.
  if (Files("out") == Results("out")) GTEST_SKIP() << "this build has no page (no npm)";
  RunWell("report out --noise 1 -o again.html");
  const std::string page = Read("again.html");
  const std::string key = "\"most_saving\":";
  ASSERT_NE(page.find(key), std::string::npos);
  EXPECT_NEAR(std::stod(page.substr(page.find(key) + key.size(), 20)), most_of(limited), 1e-3);
}

TEST_F(PlanNoiseTest, ReportRefusesAnEditedLimitOfClockChanges) {
  RunWell(plan_ + "--no-frontier --max-switches 4 -o out");
  const json summary = json::parse(Read("out/summary.json"));
  for (const json& wrong : {json(-3), json(2.5), json(true), json("4"), json(1e30)}) {
    json edited = summary;
    edited["plans"][0]["max_switches"] = wrong;
    Write("out/summary.json", edited.dump());
    ExpectComplaint(Run("report out --noise 1 -o x.html"), 2, "cannot be read");
  }
  for (const json& wrong : {json(5), json("x"), json(nullptr), json::array({1})}) {
    json edited = summary;
    edited["plans"] = wrong;
    Write("out/summary.json", edited.dump());
    ExpectComplaint(Run("report out --noise 1 -o x.html"), 2, "cannot be read");
  }
}

TEST_F(PlanNoiseTest, ThePlanFileIsThePlanWithTheMargin) {
  const std::string plan = plan_ + kInstantChanges + "--no-frontier --slowdown 5 ";
  const json with = RunJson(plan + "--noise 1 -o out");
  EXPECT_EQ(with.at("noise").at("independent"), 0.01);
  for (const json& one : with["noise"].at("plans")) {
    EXPECT_GT(one.at("without_margin").at("slowdown"), one.at("slowdown"));
    EXPECT_GT(one.at("saving"), 0);
    EXPECT_LT(one.at("most_saving").get<double>(), one["saving"].get<double>() + 0.01);
  }
  EXPECT_GT(with["plans"][0].at("energy_j"),
            RunJson(plan + "--per-instruction")["plans"][0].at("energy_j"));
  const json judged = RunJson("evaluate out/plans/no-slowdown.json --noise 1").at("noise");
  const json& planned = with["noise"]["plans"][0];
  EXPECT_NEAR(judged.at("slowdown").get<double>(), planned.at("slowdown").get<double>(),
              2 * (judged.at("slowdown_ci").get<double>() + planned["slowdown_ci"].get<double>()));
  EXPECT_THAT(RunWell(plan_ + "--no-frontier --noise 1 --common-noise 0.5"),
              HasSubstr("without a margin"));
}

// Near the least energy, the plan with a margin for less slowdown is often better.
TEST_F(PlanNoiseTest, MoreSlowdownNeverSavesLessUnderNoise) {
  RunWell("synth --gpu a40 --stages 8 -o a40.csv");
  const json summary = RunJson(
      "plan a40.csv --schedule 1f1b --pp-ranks 8 --microbatches 6 --blocking-power 83.64 "
      "--no-frontier --slowdown 20 --slowdown 5 --slowdown 10 --noise 3");
  const auto saving_of = [&](const std::string& name) {
    for (const json& plan : summary["noise"]["plans"]) {
      if (plan["name"] == name) return plan["saving"].get<double>();
    }
    return -1.0;
  };
  double least = 0;
  for (const char* name : {"no-slowdown", "slowdown-5", "slowdown-10", "slowdown-20"}) {
    EXPECT_GE(saving_of(name), least) << name;
    least = saving_of(name);
  }
}

TEST_F(PlanNoiseTest, TheNoiseOfTheProfileCountsUnlessAFlagGivesIt) {
  std::istringstream rows(Read("profile.csv"));
  std::string noisy_profile;
  bool is_header = true;
  for (std::string row; std::getline(rows, row); is_header = false) {
    noisy_profile += row + (is_header ? ",noise,common_noise\n" : ",0.01,0.005\n");
  }
  const json without = RunJson(plan_ + "--no-frontier --effort 0 --noise 0");
  const json given = RunJson(plan_ + "--no-frontier --effort 0 --noise 1 --common-noise 0.5");
  Write("profile.csv", noisy_profile);
  const json of_profile = RunJson(plan_ + "--no-frontier --effort 0");
  // The mean over the rows is rounded.
  EXPECT_NEAR(of_profile["noise"]["independent"].get<double>(), 0.01, 1e-12);
  EXPECT_NEAR(of_profile["noise"]["common"].get<double>(), 0.005, 1e-12);
  EXPECT_EQ(of_profile["plans"], given["plans"]);
  EXPECT_EQ(RunJson(plan_ + "--no-frontier --effort 0 --noise 0")["plans"], without["plans"]);
  RunWell(plan_ + "--no-frontier --effort 0 -o out");
  EXPECT_NEAR(RunJson("evaluate out/plans/no-slowdown.json")["noise"]["common"].get<double>(),
              0.005, 1e-12);
  EXPECT_TRUE(RunJson(plan_ + "--no-frontier --effort 0 --max-switches 8").contains("noise"));
}

TEST_F(PlanNoiseTest, NoiseIsRefusedWhereItMeansNothing) {
  ExpectComplaint(Run(plan_ + "--common-noise 1"), 2, "--noise 0");
  ExpectComplaint(Run("emulate profile.csv --common-noise 1"), 2, "--noise 0");
  Write("plan.json", "{}");
  ExpectComplaint(Run("evaluate plan.json --common-noise 1"), 2, "--noise 0");
  ExpectComplaint(Run(plan_ + "--noise 30"), 2, "percent");
  ExpectComplaint(Run(plan_ + "--noise nan"), 2, "--noise");
}

}  // namespace
}  // namespace perseus
