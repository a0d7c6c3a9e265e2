// Tests `perseus evaluate`, which evaluates plans and frequency lists on measured options.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/cli/command.h"

namespace perseus {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class EvaluateVerbTest : public CommandTest {
 protected:
  EvaluateVerbTest() {
    MakeProfile();
    RunWell(std::string("plan profile.csv --no-frontier --per-instruction --slowdown 5 "
                        "--frequency-lists -o out") +
            kJob);
  }

  // Changes the first `from` in a file.
  void Damage(const std::string& name, const std::string& from, const std::string& to) const {
    std::string text = Read(name);
    const std::size_t place = text.find(from);
    ASSERT_NE(place, std::string::npos);
    Write(name, text.replace(place, from.size(), to));
  }

  const std::string plan_ = "evaluate out/plans/slowdown-5.json --profile profile.csv";
};

TEST_F(EvaluateVerbTest, APlanMatchesItsClaimExactly) {
  const json summary = json::parse(Read("out/summary.json"));
  for (const json& plan : summary["plans"]) {
    const json result = RunJson("evaluate out/plans/" + plan["name"].get<std::string>() +
                                ".json --profile profile.csv");
    EXPECT_EQ(result["time_s"], plan["time_s"]);
    EXPECT_EQ(result["energy_j"], plan["energy_j"]);
    EXPECT_EQ(result["switches"], plan["switches"]);
    EXPECT_EQ(result["claimed"]["holds"], true);
    EXPECT_EQ(result["baseline"]["energy_j"], summary["baseline"]["energy_j"]);
  }
}

TEST_F(EvaluateVerbTest, TheDefaultProfileIsTheOneThatThePlanNames) {
  EXPECT_EQ(RunJson("evaluate out/plans/slowdown-5.json"), RunJson(plan_));
  EXPECT_THAT(RunWell(plan_),
              HasSubstr("The plan file has the same time and energy as this evaluation."));
}

TEST_F(EvaluateVerbTest, AProfileThatIsElsewhereNowIsGivenByAFlag) {
  Write("moved/profile.csv", Read("profile.csv"));
  std::filesystem::remove(Directory() / "profile.csv");
  ExpectComplaint(Run("evaluate out/plans/slowdown-5.json"), 2,
                  "its profile profile.csv does not exist (give its path with --profile)");
  RunWell("evaluate out/plans/slowdown-5.json --profile moved/profile.csv");
}

TEST_F(EvaluateVerbTest, TheListsEqualThePlans) {
  // The last list is the fastest plan: the one with no slowdown.
  std::string last;
  for (const std::string& file : Files("out")) {
    if (file.ends_with(".py")) last = file;
  }
  json of_list = RunJson("evaluate out/" + last + " --profile profile.csv" + kJob);
  json of_plan = RunJson("evaluate out/plans/no-slowdown.json --profile profile.csv");
  of_plan.erase("claimed");
  EXPECT_EQ(of_list, of_plan);
}

TEST_F(EvaluateVerbTest, SwitchingTakesTime) {
  const json at_once = RunJson(plan_);
  const json late = RunJson(plan_ + " --switch-latency 20");
  EXPECT_GE(late["time_s"], at_once["time_s"]);
  EXPECT_EQ(late["switch_latency_s"], 0.02);
  EXPECT_EQ(late["baseline"]["time_s"], at_once["baseline"]["time_s"]);
}

TEST_F(EvaluateVerbTest, AByteOrderMarkIsAccepted) {
  const std::string mark = "\xEF\xBB\xBF";
  Write("plan.json", mark + Read("out/plans/slowdown-5.json"));
  RunWell("evaluate plan.json");
  Write("list.py", mark + Read("out/freqs_pipeline_00000.py"));
  RunWell(std::string("evaluate list.py --profile profile.csv") + kJob);
}

TEST_F(EvaluateVerbTest, AFalseClaimIsReported) {
  Damage("out/plans/slowdown-5.json", "\"energy_j\": ", "\"energy_j\": 1");
  const Outcome outcome = Run(plan_ + " --json");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("out/plans/slowdown-5.json: its time and energy are not"));
  const json claim = json::parse(outcome.out)["claimed"];
  EXPECT_EQ(claim["holds"], false);
  const Outcome table = Run(plan_);
  EXPECT_EQ(table.status, 2);
  EXPECT_THAT(table.out, HasSubstr("The plan file has 1.71508 s and 11958.7 J, but this "));
  // Under other conditions, other numbers are the answer.
  EXPECT_EQ(RunJson(plan_ + " --switch-latency 20")["claimed"]["holds"], false);
  Write("other.csv", Read("profile.csv"));
  EXPECT_EQ(RunJson("evaluate out/plans/slowdown-5.json --profile other.csv")["claimed"]["holds"],
            false);
}

TEST_F(EvaluateVerbTest, TheSizesOfThePlanAreThoseOfItsInstructions) {
  for (const std::string key : {"pp_ranks", "chunks"}) {
    json plan = json::parse(Read("out/plans/no-slowdown.json"));
    plan["job"][key] = 1'000'000;
    Write("large.json", plan.dump());
    ExpectComplaint(Run("evaluate large.json"), 2, "large.json: job." + key + " is 1000000, but");
  }
}

TEST_F(EvaluateVerbTest, AnErrorOfTheOrderNamesThePlan) {
  json plan = json::parse(Read("out/plans/no-slowdown.json"));
  json& instructions = plan["pp_ranks"][1]["instructions"];
  std::reverse(instructions.begin(), instructions.end());
  Write("reversed.json", plan.dump());
  ExpectComplaint(Run("evaluate reversed.json"), 2, "reversed.json: schedule 1f1b deadlocks");
}

TEST_F(EvaluateVerbTest, AnEmptyFileIsAPlanOrAListByItsName) {
  Write("empty.json", "");
  ExpectComplaint(Run("evaluate empty.json"), 2, "empty.json:");
  EXPECT_THAT(Run("evaluate empty.json").err, Not(HasSubstr("pp_rank's list")));
  Write("empty.py", "\n");
  ExpectComplaint(Run("evaluate empty.py --profile profile.csv"), 2, "first pp_rank's list");
}

TEST_F(EvaluateVerbTest, AnUnmeasuredClockIsReportedWithTheNearestOne) {
  json plan = json::parse(Read("out/plans/no-slowdown.json"));
  plan["pp_ranks"][2]["instructions"][5]["frequency"] = 1203;
  Write("changed.json", plan.dump());
  ExpectComplaint(Run("evaluate changed.json"), 2,
                  "changed.json: pp_ranks[2].instructions[5]: stage 2 forward was not measured at "
                  "1203 MHz, the nearest measured is 1200 MHz (");
}

TEST_F(EvaluateVerbTest, APlanHasItsOwnSchedule) {
  ExpectComplaint(Run(plan_ + " --schedule gpipe"), 2, "its own schedule");
  for (const char* flag : {"--fold", "--max-in-flight 3", "--memory 80"}) {
    ExpectComplaint(Run(plan_ + " " + flag), 2,
                    "searched for (remove it: the plan contains its own)");
  }
  Write("g.json", "{}");
  ExpectComplaint(Run(plan_ + " --graph g.json"), 2, "remove --graph");
}

TEST_F(EvaluateVerbTest, YearsOfWaitingCountAndMoreIsRefused) {
  RunWell("synth --stages 32 -o many.csv");
  const auto lists_of = [](int microbatches) {
    std::string list = "[\n";
    for (int rank = 0; rank < 32; ++rank) {
      list += "[";
      for (int i = 0; i < 2 * microbatches; ++i) list += "1410,";
      list += "],\n";
    }
    return list + "]\n";
  };
  const std::string job = " --profile many.csv --schedule gpipe --blocking-power 83 --load 1e6";
  // 31 ranks wait for 400 loads of a megasecond each.
  Write("long.py", lists_of(400));
  const Outcome outcome = Run("evaluate long.py --json --microbatches 400" + job);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err,
              HasSubstr("warning: the load of a microbatch takes 1e+06 s, longer than"));
  const json result = json::parse(outcome.out);
  EXPECT_NEAR(result["blocking_energy_j"], 31 * 400e6 * 83, 1e-3 * 31 * 400e6 * 83);
  Write("longer.py", lists_of(1200));
  ExpectComplaint(Run("evaluate longer.py --microbatches 1200" + job), 2, "36 years");
}

TEST_F(EvaluateVerbTest, ListsNeedTheFlagsOfTheJob) {
  ExpectComplaint(Run("evaluate out/freqs_pipeline_00000.py --profile profile.csv"), 2,
                  "--blocking-power");
  ExpectComplaint(Run("evaluate out/freqs_pipeline_00000.py --profile profile.csv --schedule 1f1b "
                      "--microbatches 9 --blocking-power 80"),
                  2, "out/freqs_pipeline_00000.py:2: pp_rank 0 has 16 frequencies");
}

TEST_F(EvaluateVerbTest, AFileOfAnotherKindIsRefused) {
  Write("other.json", "{\"a\": 1}");
  ExpectComplaint(Run("evaluate other.json"), 2, "other.json: is not a plan of Perseus");
  Write("os.py", "import os\n");
  ExpectComplaint(Run("evaluate os.py --profile profile.csv"), 2, "os.py:1: \"import\"");
  ExpectComplaint(Run("evaluate profile.csv"), 2,
                  "profile.csv: is not a plan, but a CSV such as a profile (perseus plan makes");
}

TEST_F(EvaluateVerbTest, AProfileInAnotherUnitIsRefused) {
  Write("ms.csv",
        "stage,instruction,frequency,time,energy\n0,forward,1410,50,20\n0,backward,1410,100,40\n");
  Write("ms.py", "[[1410, 1410],]");
  ExpectComplaint(Run("evaluate ms.py --profile ms.csv --schedule 1f1b --microbatches 1 "
                      "--blocking-power 80"),
                  2, "the times are probably in milliseconds");
}

}  // namespace
}  // namespace perseus
