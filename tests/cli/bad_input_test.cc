// Tests that every bad input gives status 2, one line with the cause and the remedy, and no files.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <sstream>

#include "tests/cli/program.h"

namespace perseus {
namespace {

using ::testing::IsEmpty;

const std::string kHeader = "stage,instruction,frequency,time,energy\n";
// Three useful options of the forward and backward of stage 0.
const std::string kRows =
    "0,forward,1400,0.010,4\n0,forward,1200,0.012,3.2\n0,forward,1000,0.015,2.7\n"
    "0,backward,1400,0.020,8\n0,backward,1200,0.024,6.4\n0,backward,1000,0.030,5.4\n";

class BadInputTest : public CommandTest {
 protected:
  struct Refusal {
    std::string arguments;
    std::string complaint;
  };

  BadInputTest() { Write("good.csv", kHeader + kRows); }

  void ExpectRefused(const std::vector<Refusal>& refusals) const {
    for (const auto& [arguments, complaint] : refusals) {
      SCOPED_TRACE(arguments);
      ExpectComplaint(Run(arguments + " -o out"), 2, complaint);
      EXPECT_THAT(Files("out"), IsEmpty());
    }
  }
};

// The tests of the readers (profile_file_test.cc, graph_file_test.cc) have the files that a reader
// refuses.
TEST_F(BadInputTest, AFileIsRefused) {
  Write("typo.csv", kHeader + "0,forward,14l0,0.01,4\n");
  Write("forward.csv", kHeader + kRows.substr(0, kRows.find("0,backward")));
  Write("fixed.csv", kHeader + "0,forward,1400,0.01,4\n0,backward,1400,0.01,4\n");
  Write("blank.json", " \n");
  const std::string job = " --schedule 1f1b --microbatches 2 --blocking-power 80";
  ExpectRefused({{"plan typo.csv" + job, "typo.csv:2: frequency \"14l0\""},
                 {"plan forward.csv" + job, "backward"},
                 {"plan fixed.csv" + job, "stage 0 forward"},
                 {"plan --graph blank.json", "blank.json:1: not JSON: it is empty (see"}});
}

TEST_F(BadInputTest, AUseIsRefused) {
  Write("deadlock.csv", "0B0,0F0\n");
  Write("s.csv", "0F0,0F1,0B0,0B1\n");
  Write("powerless.toml",
        "profile = \"good.csv\"\n[pipeline]\nschedule = \"1f1b\"\nmicrobatches = 2\n");
  Write("graph.toml", "[pipeline]\ngraph = \"g.json\"\n[[fixed]]\nkind = \"load\"\ntime_s = 1\n");
  ExpectRefused(
      {{"plan", "the profile is missing"},
       {"plan good.csv --blocking-power 80", "the schedule is missing"},
       {"plan good.csv --blocking-power 80 --schedule 1f1b", "--microbatches"},
       {"plan good.csv --schedule 1f1b --microbatches 2", "--blocking-power"},
       {"plan --job powerless.toml", "blocking_power_w"},
       {"plan good.csv --schedule-file s.csv --blocking-power 80 --microbatches 96",
        "s.csv: has 2 microbatches, not 96"},
       {"plan --job graph.toml", "graph.toml: fixed does not apply"},
       {"plan --job powerless.toml --graph good.csv", "powerless.toml: profile does not apply"},
       {"plan good.csv --schedule 1f1b --schedule-file deadlock.csv", "--schedule"},
       {"plan good.csv --schedule-file deadlock.csv --blocking-power 80", "deadlock"},
       {"plan good.csv --slowdon 5", "did you mean --slowdown?"},
       {"plan good.csv --slowdown five", "\"five\" is not a number"},
       {"plan good.csv --deadline nan", "\"nan\" is not a number"},
       {"plan good.csv --slowdown -5", "\"-5\" is not a number"},
       {"plan good.csv --pp-ranks 0", "\"0\" is not a whole number"},
       {"plan --graph good.csv --pp-ranks 4", "does not apply to a general"},
       {"plan good.csv --schedule 1f1b --pp-ranks 3 --microbatches 2 --blocking-power 80",
        "has 1 stages"},
       {"synth --instructions forword", "forword"}});
}

class UseTest : public CommandTest {};

TEST_F(UseTest, AFurtherValueOfAFlagIsExplained) {
  MakeProfile();
  ExpectComplaint(Run(std::string("plan profile.csv --slowdown 0 2 10") + kJob), 2,
                  "\"2\" is unknown (see perseus plan --help; a flag takes one value, so repeat");
  EXPECT_EQ(Run("plan --help").out.find("PCT ..."), std::string::npos);
  // As a result, an argument may follow a flag.
  RunWell(std::string("plan --no-frontier --slowdown 3 --slowdown 4 profile.csv") + kJob);
  RunWell(std::string("plan --no-frontier --figure timeline.svg profile.csv") + kJob);
}

// The stages of the profile are those of the model, in their order. Here, two are on each pp_rank.
TEST_F(UseTest, AScheduleWithSeveralStagesOnAPpRankTakesStagesOfTheModel) {
  const std::string kinds = " --instructions forward,backward,backward_input,backward_weight ";
  RunWell("synth --stages 8" + kinds + "-o eight.csv");
  std::istringstream rows(Read("eight.csv"));
  std::string row;
  std::getline(rows, row);
  std::string by_chunk = "pp_rank,chunk," + row.substr(row.find(',') + 1) + '\n';
  for (; std::getline(rows, row);) {
    const int stage = std::stoi(row);
    by_chunk += fmt::format("{},{}{}\n", stage % 4, stage / 4, row.substr(row.find(',')));
  }
  Write("chunks.csv", by_chunk);
  const std::string interleaved =
      " --schedule interleaved-1f1b --chunks 2 --microbatches 8 --blocking-power 80 --no-frontier ";
  ExpectComplaint(Run("plan eight.csv" + interleaved), 2,
                  "if its 8 stages are those of the model, use --pp-ranks 4)");
  EXPECT_EQ(
      nlohmann::json::parse(RunWell("plan eight.csv --pp-ranks 4 --json" + interleaved))["plans"],
      nlohmann::json::parse(RunWell("plan chunks.csv --json" + interleaved))["plans"]);
  RunWell(
      "plan eight.csv --schedule zb-v --pp-ranks 4 --microbatches 8 --blocking-power 80 "
      "--no-frontier");
}

}  // namespace
}  // namespace perseus
