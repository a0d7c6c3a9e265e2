// Tests of hostile surroundings of the program: closed and broken outputs, names with any bytes,
// and values at the limits of numbers.
#include <gmock/gmock.h>

#include <regex>

#include "tests/cli/program.h"

namespace perseus {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class HostileTest : public CommandTest {
 protected:
  HostileTest() { MakeProfile(); }

  const std::string plan_ =
      std::string("plan profile.csv") + kJob + "--no-frontier --effort 0 -o out";
};

// Otherwise, a file of the program would get the number of the closed descriptor, and the output
// would go to this file.
TEST_F(HostileTest, AClosedStandardOutputIsAFailureAndNoFileGetsTheOutput) {
  ExpectComplaint(Run(plan_ + " >&-"), 1, "cannot write to standard output: Bad file descriptor (");
  EXPECT_FALSE(std::filesystem::exists(Directory() / "out"));
  EXPECT_EQ(Run(plan_ + " >&- 2>&-").status, 1);
  EXPECT_FALSE(std::filesystem::exists(Directory() / "out"));
  for (const char* help : {"help plan", "plan --help", "--version"}) {
    ExpectComplaint(Run(std::string(help) + " >&-"), 1, "Bad file descriptor (leave it open)");
  }
  RunWell(plan_ + " <&-");
  const std::string before = Read("out/summary.json");
  EXPECT_EQ(Run(plan_ + " <&- >&- 2>&-").status, 1);
  EXPECT_EQ(Read("out/summary.json"), before);
}

TEST_F(HostileTest, IfNobodyReadsTheOutputTheDirectoryIsAsBefore) {
  const Outcome outcome = Run(plan_ + " | true; ls -A out; rm -rf out");
  EXPECT_THAT(outcome.err, HasSubstr("cannot write to standard output: Broken pipe ("));
  EXPECT_THAT(outcome.out, IsEmpty());
}

TEST_F(HostileTest, AMessageWithAnyNameIsOneLine) {
  for (const char* name : {"'a\nb.csv'", "'\x1b[31mred'", "'\xff\xfe'", "'a\tb'"}) {
    ExpectComplaint(Run(std::string("plan ") + name), 2, ": cannot read: No such file");
  }
}

TEST_F(HostileTest, AMistakeInTheWordsIsNamed) {
  const std::string plan = std::string("plan profile.csv") + kJob;
  const std::pair<std::string, const char*> cases[] = {
      {"''", "\"\" is unknown (see perseus --help)"},
      {"plan ''", "profile: the value is empty (give a value, or leave it out)"},
      {plan + "--schedule gpipe", "--schedule is given more than once: give it once (see perseus "},
      {plan + "--slowdown", "--slowdown has no value: give it one (see perseus plan --help)"},
      {plan + "--price 1", "--price needs 2 values: KWH GPUHOUR (see perseus plan --help)"},
      {"job show ''", "job: the value is empty (give a value)"},
      {"synth --output ''", "--output: the value is empty"},
      {"synth --seed -1", "\"-1\" is not a whole number from 0 to 1000000000000000000 (see"},
      {"synth --noise 9", "--noise: \"9\" is not a number from 0 to 0.3"},
      {"synth --noise 0,1", "--noise: \"0,1\" has a comma (give one number, such as 0.1)"},
      {"synth --head nan", "--head: \"nan\" is not a number from 0 to 10"},
      {"gpu grant GPU-1 --uid nobody", "\"nobody\" is not a whole number from 0 to 4294967294"},
      {plan + "-o", "--output has no value: give it one (see perseus plan --help)"},
      {"plan -- profile.csv --schedule gpipe",
       "\"--schedule\" is unknown (see perseus plan --help"}};
  for (const auto& [arguments, complaint] : cases) {
    SCOPED_TRACE(arguments);
    ExpectComplaint(Run(arguments), 2, complaint);
  }
  RunWell(std::string("plan --no-frontier ") + kJob + " -- profile.csv");
}

TEST_F(HostileTest, ALongArgumentIsCutInTheMessage) {
  const Outcome outcome = Run("plan " + std::string(100'000, 'x'));
  ExpectComplaint(outcome, 2, "x: cannot read: File name too long (give a shorter name");
  EXPECT_LT(outcome.err.size(), 5000u);
}

TEST_F(HostileTest, ANumberThatIsTooSmallIsNoCrash) {
  for (const char* flag : {"--switch-cost 1e-320", "--noise 1e-320", "--deadline 1e-320"}) {
    ExpectComplaint(Run(std::string("plan profile.csv ") + kJob + flag), 2,
                    "\"1e-320\" is too small: write 0 (see perseus plan --help)");
  }
}

TEST_F(HostileTest, LimitsOfTheServerAreNumbers) {
  ExpectComplaint(Run("serve --max-jobs 1.5"), 2,
                  "--max-jobs: \"1.5\" is not a whole number from 0 to 1000000");
  ExpectComplaint(Run("serve --rate nan"), 2, "--rate: \"nan\" is not a number from 0 to 1000000");
}

// Before a verb waits or talks to a server, it says what it cannot do.
TEST_F(HostileTest, WordsThatContradictEachOtherAreRefusedAtOnce) {
  std::filesystem::create_directory(Directory() / "job");
  const std::pair<const char*, const char*> cases[] = {
      {"tune job --slowdown 3 --deadline 4", "a job has only one target (give one target flag)"},
      {"run --budget-steps 3 -- true", "--budget-steps requires --tune"},
      {"token create --scope agent", "a token of scope agent is for nodes (add --node"},
      {"audit --limit 3 --all", "--limit excludes --all"},
      {"job register r --schedule 1f1b --pp-ranks 2 --microbatches 4 --fold",
       "--fold is for a schedule that is searched for (add --schedule auto)"},
      {"synth --fold", "--fold is for two chunks on each pp_rank (add --chunks 2)"}};
  for (const auto& [arguments, complaint] : cases) {
    SCOPED_TRACE(arguments);
    ExpectComplaint(Run(arguments), 2, complaint);
  }
}

TEST_F(HostileTest, WhatIsReadIsNotOverwritten) {
  Write("layers.csv", std::regex_replace(Read("profile.csv"), std::regex("^stage"), "layer"));
  RunWell(plan_);
  std::filesystem::create_symlink("layers.csv", Directory() / "link.csv");
  const std::string partition =
      "partition layers.csv --stages 2 --microbatches 4 --blocking-power 80 -o ";
  const std::pair<std::string, const char*> cases[] = {
      {partition + "layers.csv", "layers.csv"},
      {partition + "link.csv", "layers.csv"},
      {"report out/plans/no-slowdown.json -o out/plans/no-slowdown.json",
       "out/plans/no-slowdown.json"},
      {"job register r --profile profile.csv --write-schedule profile.csv", "profile.csv"}};
  for (const auto& [arguments, file] : cases) {
    SCOPED_TRACE(arguments);
    const std::string before = Read(file);
    ExpectComplaint(Run(arguments), 2, ": is a file to read, and is not overwritten");
    EXPECT_EQ(Read(file), before);
  }
  RunWell(partition + "stages.csv");
}

// Only the plans name the profile and the graph. Other files lie beside the plans.
TEST_F(HostileTest, AReportReplacesOnlyAPage) {
  Write("overlay.csv", "time,energy\n1.9,2000\n2.0,1900\n");
  RunWell(plan_);
  std::filesystem::create_symlink("profile.csv", Directory() / "page.html");
  for (const char* file : {"profile.csv", "out/plans/no-slowdown.json", "out/summary.json",
                           "out/trace.json", "page.html", "overlay.csv"}) {
    SCOPED_TRACE(file);
    const std::string before = Read(file);
    ExpectComplaint(Run(std::string("report out -o ") + file), 2,
                    std::string(file) + ": exists and is not an HTML page, and is not overwritten");
    ExpectComplaint(Run(std::string("report out --overlay ours=overlay.csv -o ") + file), 2,
                    ", and is not overwritten");
    EXPECT_EQ(Read(file), before);
  }
  Write("graph.json", R"({"blocking_power": 40, "instructions": [
    {"name": "a", "resource": "one", "options": [
      {"frequency": 1410, "time": 1.0, "energy": 300},
      {"frequency": 1200, "time": 1.1, "energy": 250}]}]})");
  RunWell("plan --graph graph.json --no-frontier -o of-graph");
  ExpectComplaint(Run("report of-graph -o graph.json"), 2, "graph.json: exists and is not");
}

TEST_F(HostileTest, AReportReplacesAPageAndAnEmptyFile) {
  RunWell(plan_);
  Write("page.html", "");
  if (Files("out") == Results("out")) GTEST_SKIP() << "this build has no page (no npm)";
  RunWell("report out -o page.html");
  RunWell("report out -o out/report.html");
  ExpectComplaint(Run("report out -o page.html --overlay page.html"), 2,
                  "page.html: is a file to read, and is not overwritten");
}

TEST_F(HostileTest, ANodeSaysThatItsDirectoryOfJobsDoesNotExist) {
  RunWell(
      "node --jobs absent --server http://127.0.0.1:1 2>log & for i in $(seq 400); do "
      "grep -qs directory log && break; sleep 0.05; done; kill $!");
  EXPECT_THAT(Read("log"), HasSubstr("warning: absent is no directory yet: no job of this node"));
}

TEST_F(HostileTest, AWrongNameSuggestsTheNearest) {
  Write("job.toml", "[pipeline]\nschedule = \"1F1B\"\n");
  ExpectComplaint(Run("plan profile.csv --job job.toml"), 2,
                  "job.toml:2: unknown schedule \"1F1B\" (did you mean \"1f1b\"?)");
  Write("job.toml", "[pipeline]\nschedule = \"atuo\"\n");
  ExpectComplaint(Run("plan profile.csv --job job.toml"), 2, "(did you mean \"auto\"?)");
  ExpectComplaint(Run("synth --gpu a1000"), 2, "\"a1000\" is unknown (did you mean \"a100\"?)");
  ExpectComplaint(Run("synth --gpu z"), 2, "\"z\" is unknown (known: a100, a40, ");
}

}  // namespace
}  // namespace perseus
