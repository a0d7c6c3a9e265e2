// Tests `perseus evaluate`, which evaluates plans on measured options.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/cli/program.h"

namespace perseus {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class EvaluateVerbTest : public CommandTest {
 protected:
  EvaluateVerbTest() {
    MakeProfile();
    RunWell(std::string("plan profile.csv --no-frontier --per-instruction --slowdown 5 -o out") +
            kJob);
  }

  // Changes the first occurrence of `from` in a file.
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
  Write("marked.json", "\xEF\xBB\xBF" + Read("out/plans/slowdown-5.json"));
  EXPECT_EQ(RunJson("evaluate marked.json"), RunJson(plan_)) << "a byte order mark";
  EXPECT_THAT(RunWell(plan_),
              HasSubstr("The plan file has the same time and energy as this evaluation."));
}

TEST_F(EvaluateVerbTest, AnyDirectoryWillDo) {
  const std::string from_elsewhere =
      "--version; mkdir -p elsewhere; cd elsewhere; '" PERSEUS_PROGRAM "' ";
  EXPECT_THAT(RunWell(from_elsewhere + "evaluate ../out/plans/slowdown-5.json"),
              HasSubstr("The plan file has the same time and energy as this evaluation."));
}

// Other files with this name, in the working directory and above the plan, are no profiles of the
// plan.
TEST_F(EvaluateVerbTest, NoOtherProfileReplacesTheOneOfTheRun) {
  RunWell("synth --gpu a40 --stages 8 -o other.csv");
  Write("runs/profile.csv", Read("other.csv"));
  Write("elsewhere/profile.csv", Read("other.csv"));
  RunWell(
      "plan profile.csv --schedule 1f1b --microbatches 12 --blocking-power 84 --no-frontier -o "
      "runs/one");
  const std::string from_elsewhere = "--version; cd elsewhere; '" PERSEUS_PROGRAM "' ";
  EXPECT_THAT(RunWell(from_elsewhere + "evaluate ../runs/one/plans/no-slowdown.json"),
              HasSubstr("The plan file has the same time and energy as this evaluation."));
  RunWell(from_elsewhere + "report ../runs/one --figure timeline.svg");

  // Without the run, a profile beside the plan counts, and then one in the working directory.
  Write("copied/plan.json", Read("runs/one/plans/no-slowdown.json"));
  RunWell("evaluate copied/plan.json");
  Write("copied/profile.csv", Read("other.csv"));
  EXPECT_EQ(Run("evaluate copied/plan.json").status, 2);
  Write("above/copied/plan.json", Read("copied/plan.json"));
  Write("above/profile.csv", Read("profile.csv"));
  std::filesystem::remove(Directory() / "profile.csv");
  ExpectComplaint(Run("evaluate above/copied/plan.json"), 2,
                  "its profile profile.csv does not exist (give its path with --profile)");
}

TEST_F(EvaluateVerbTest, AProfileThatIsElsewhereNowIsGivenByAFlag) {
  Write("moved/profile.csv", Read("profile.csv"));
  std::filesystem::remove(Directory() / "profile.csv");
  ExpectComplaint(Run("evaluate out/plans/slowdown-5.json"), 2,
                  "its profile profile.csv does not exist (give its path with --profile)");
  RunWell("evaluate out/plans/slowdown-5.json --profile moved/profile.csv");
}

// Tests examples/frequency_lists.py.
TEST_F(EvaluateVerbTest, TheExampleWritesAndReadsFrequencyLists) {
  const std::string example =
      "--version; python3 '" PERSEUS_SOURCE_DIR "/examples/frequency_lists.py' ";
  RunWell(example + "out/plans/slowdown-5.json >lists.py");
  EXPECT_THAT(Read("lists.py"), StartsWith("[\n[('forward', "));
  const std::string read = example + "out/plans/no-slowdown.json lists.py >read.json";
  RunWell(read);
  json of_lists = RunJson("evaluate read.json --switch-latency 0");
  json of_plan = RunJson(plan_);
  EXPECT_NE(of_lists["claimed"], of_plan["claimed"]);
  of_lists.erase("claimed");
  of_plan.erase("claimed");
  EXPECT_EQ(of_lists, of_plan);
  Write("lists.py", "[__import__('os').system('touch ran')]");
  EXPECT_NE(Run(read).status, 0);
  EXPECT_THAT(Files("."), Not(Contains("ran")));
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
  // Under other conditions, the result has other numbers.
  const json late = RunJson(plan_ + " --switch-latency 20");
  EXPECT_EQ(late["claimed"]["holds"], false);
  EXPECT_EQ(late["switch_latency_s"], 0.02);
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

TEST_F(EvaluateVerbTest, AnUnmeasuredClockIsReportedWithTheNearestOne) {
  json plan = json::parse(Read("out/plans/no-slowdown.json"));
  plan["pp_ranks"][2]["instructions"][5]["frequency"] = 1203;
  Write("changed.json", plan.dump());
  ExpectComplaint(Run("evaluate changed.json"), 2,
                  "changed.json: pp_ranks[2].instructions[5]: stage 2 forward was not measured at "
                  "1203 MHz, the nearest measured is 1200 MHz (");
}

TEST_F(EvaluateVerbTest, APlanHasItsOwnSchedule) {
  for (const char* flag : {"--schedule", "--fold", "--max-in-flight", "--memory"}) {
    ExpectComplaint(Run(plan_ + " " + flag), 2, "is unknown (see perseus evaluate --help");
  }
  Write("g.json", "{}");
  ExpectComplaint(Run(plan_ + " --graph g.json"), 2, "remove --graph");
}

TEST_F(EvaluateVerbTest, AFileOfAnotherKindIsRefused) {
  ExpectComplaint(Run("evaluate profile.csv"), 2,
                  "profile.csv: is not a plan, but a CSV such as a profile (perseus plan makes");
}

TEST_F(EvaluateVerbTest, YearsOfWaitingCountAndMoreIsRefused) {
  const auto write_plan = [&](const std::string& name, int pp_ranks, int microbatches) {
    RunWell(fmt::format("synth --stages {} -o {}.csv", pp_ranks, name));
    json plan = json::parse(Read("out/plans/no-slowdown.json"));
    plan["job"].update(
        {{"schedule", "gpipe"}, {"pp_ranks", pp_ranks}, {"microbatches", microbatches}});
    plan["pp_ranks"] = json::array();
    for (int rank = 0; rank < pp_ranks; ++rank) {
      json instructions = json::array();
      for (const char* kind : {"forward", "backward"}) {
        for (int i = 0; i < microbatches; ++i) {
          instructions.push_back({{"kind", kind},
                                  {"stage", rank},
                                  {"chunk", 0},
                                  {"microbatch", i},
                                  {"frequency", 1410},
                                  {"start_s", 0},
                                  {"duration_s", 0},
                                  {"energy_j", 0}});
        }
      }
      plan["pp_ranks"].push_back(
          {{"pp_rank", rank}, {"name", "a rank"}, {"instructions", instructions}});
    }
    Write(name + ".json", plan.dump());
    return fmt::format("evaluate {0}.json --profile {0}.csv --blocking-power 83 --load 1e6 ", name);
  };
  // 31 ranks wait for 400 loads of a megasecond each.
  const Outcome outcome = Run(write_plan("long", 32, 400) + "--json");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err,
              HasSubstr("warning: the load of a microbatch takes 1e+06 s, longer than"));
  const json result = json::parse(outcome.out);
  EXPECT_NEAR(result["blocking_energy_j"], 31 * 400e6 * 83, 1e-3 * 31 * 400e6 * 83);
  ExpectComplaint(Run(write_plan("longer", 2, 1200)), 2, "36 years");
}

TEST_F(EvaluateVerbTest, AProfileInAnotherUnitIsRefused) {
  const std::string header = "stage,instruction,frequency,time,energy\n";
  Write("s.csv", header +
                     "0,forward,1410,0.05,20\n0,forward,1200,0.06,17\n"
                     "0,backward,1410,0.1,40\n0,backward,1200,0.12,34\n");
  RunWell("plan s.csv --schedule 1f1b --microbatches 1 --blocking-power 80 --no-frontier -o one");
  Write("ms.csv", header +
                      "0,forward,1410,50,20\n0,forward,1200,60,17\n"
                      "0,backward,1410,100,40\n0,backward,1200,120,34\n");
  ExpectComplaint(Run("evaluate one/plans/no-slowdown.json --profile ms.csv"), 2,
                  "the times are probably in milliseconds");
}

}  // namespace
}  // namespace perseus
