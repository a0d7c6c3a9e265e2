// Tests the directory of results. After any end of a run, the directory has the complete results of
// this run or of the earlier run. It also still has the other files of the user.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <map>

#include "tests/cli/program.h"

namespace perseus {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ResultsTest : public CommandTest {
 protected:
  ResultsTest() { MakeProfile(); }

  using Contents = std::map<std::string, std::string>;

  Contents Of(const std::string& folder) const {
    Contents contents;
    for (const std::string& name : Files(folder)) contents[name] = Read(folder + "/" + name);
    return contents;
  }

  // Runs a command of the shell in the directory.
  void Shell(const std::string& command) const { RunWell("--version; " + command); }

  // Starts the program in the background, and waits until the program uses the directory. The
  // program then waits for the end of its profile. This wait ends only when the program ends.
  std::string Hanging(const std::string& then) const {
    return fmt::format(
        "while sleep 0.1 && echo; do :; done | '{}' plan /dev/stdin {} -o out & run=$!; "
        "until [ -e out/.perseus-lock ]; do sleep 0.01; done; {}; true",
        PERSEUS_PROGRAM, kJob, then);
  }

  const std::string plan_ =
      std::string("plan profile.csv") + kJob + "--stops 0 --no-frontier --per-instruction ";
};

// Another user may be able to write into the directory, as into a job directory. This user may put
// a link in place of the files that a killed run left. Because of such a link, this run must not
// move or remove other files.
TEST_F(ResultsTest, WhatAnotherRunLeftIsNoLink) {
  RunWell(plan_ + "-o out");
  Write("precious/key", "secret");
  fs::create_symlink(Directory() / "precious", Directory() / "out/.perseus-new");
  const Outcome outcome = Run(plan_ + "-o out");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("out/.perseus-new: was not written by perseus"));
  EXPECT_EQ(Read("precious/key"), "secret");
  fs::remove(Directory() / "out/.perseus-new");
  // Files that are not results also stay in their place.
  Write("out/.perseus-new/summary.json", Read("out/summary.json"));
  Write("out/.perseus-new/notes.txt", "theirs");
  RunWell(plan_ + "-o out");
  EXPECT_THAT(Files("out"), Not(Contains("notes.txt")));
}

// A killed run of version 0.1 left such a directory, or another user made a link with its name.
TEST_F(ResultsTest, WhatAnEarlierVersionLeftIsNotTouched) {
  Write("precious/key", "secret");
  fs::create_directory(Directory() / "out");
  fs::create_symlink(Directory() / "precious", Directory() / "out/.perseus-run");
  for (int i = 0; i < 2; ++i) RunWell(plan_ + "-o out");
  EXPECT_TRUE(fs::is_symlink(Directory() / "out/.perseus-run"));
  EXPECT_THAT(Files("precious"), ElementsAre("key"));
}

TEST_F(ResultsTest, AFailedRunKeepsTheEarlierResults) {
  RunWell(plan_ + "--slowdown 7 -o out");
  Write("out/notes.txt", "mine");
  Write("out/plans/mine.json", "{}");
  const Contents before = Of("out");
  Write("nan.csv", "stage,instruction,frequency,time,energy\n0,forward,1400,nan,1\n");
  EXPECT_EQ(Run(plan_ + "--slowdwon 5 -o out").status, 2);
  EXPECT_EQ(Of("out"), before);
  EXPECT_EQ(Run(std::string("plan nan.csv") + kJob + "-o out").status, 2);
  EXPECT_EQ(Of("out"), before);
  EXPECT_EQ(Run(std::string("plan nothing.csv") + kJob + "-o out").status, 2);
  EXPECT_EQ(Of("out"), before);
  EXPECT_EQ(Run(plan_ + "--deadline 0.001 -o out").status, 3);
  EXPECT_EQ(Of("out"), before);
  EXPECT_EQ(Run(plan_ + "-o out >/dev/full").status, 1);
  EXPECT_EQ(Of("out"), before);
  // A limit on the size of files has the same effect as a full disk.
  const Outcome full =
      Run(fmt::format("--version; (ulimit -f 1; exec '{}' {} -o out)", PERSEUS_PROGRAM, plan_));
  EXPECT_EQ(full.status, 1);
  EXPECT_THAT(full.err, HasSubstr("cannot write"));
  EXPECT_EQ(Of("out"), before);
}

TEST_F(ResultsTest, ASearchThatFailsKeepsTheEarlierOne) {
  const std::string search =
      "schedule search profile.csv --microbatches 4 --blocking-power 84 -o found --more ";
  RunWell(search + "0,1");
  Write("found/notes.txt", "mine");
  Write("found/more-mine.csv", "mine");
  const Contents before = Of("found");
  ASSERT_TRUE(before.contains("more-1.csv"));
  EXPECT_EQ(Run(search + "2 >/dev/full").status, 1);
  EXPECT_EQ(Of("found"), before);
  ExpectComplaint(Run(search + "2 --memory 1 --activation-memory 1024"), 3, "no known schedule");
  EXPECT_EQ(Of("found"), before);
  // A limit on the size of files has the same effect as a full disk.
  const Outcome full =
      Run(fmt::format("--version; (ulimit -f 1; exec '{}' {}2)", PERSEUS_PROGRAM, search));
  EXPECT_EQ(full.status, 1);
  EXPECT_THAT(full.err, HasSubstr("cannot write"));
  EXPECT_EQ(Of("found"), before);
  // No row of the earlier run stays beside the rows of the new run.
  RunWell(search + "2");
  EXPECT_THAT(Results("found"),
              ElementsAre("more-2.csv", "more-2.txt", "more-mine.csv", "notes.txt", "search.json"));
  // The summary of version 0.1 has no list.
  auto summary = nlohmann::json::parse(Read("found/search.json"));
  summary.erase("files");
  Write("found/search.json", summary.dump());
  RunWell(search + "1");
  EXPECT_THAT(Results("found"),
              ElementsAre("more-1.csv", "more-1.txt", "more-mine.csv", "notes.txt", "search.json"));
}

// If the figure cannot be written, the results are kept, because a figure can be drawn again.
// Nobody can write into /proc.
TEST_F(ResultsTest, AFigureThatCannotBeWrittenKeepsTheResults) {
  const std::pair<std::string, std::string> runs[] = {
      {plan_, "summary.json"},
      {"schedule search profile.csv --microbatches 4 --blocking-power 84 --more 0 ",
       "search.json"}};
  for (const auto& [run, summary] : runs) {
    SCOPED_TRACE(run);
    const Outcome outcome =
        Run(run + "-o out-" + summary + " --figure /proc/timeline.svg --figure timeline.svg");
    if (outcome.err.find("no figures") != std::string::npos) GTEST_SKIP() << "no npm";
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.err, HasSubstr("/proc/timeline.svg"));
    EXPECT_THAT(outcome.err, HasSubstr("; all other results are in out-" + summary + ")\n"));
    EXPECT_TRUE(fs::exists(Directory() / ("out-" + summary) / summary));
    EXPECT_TRUE(fs::exists(Directory() / "timeline.svg"));
    EXPECT_THAT(outcome.out, HasSubstr(" in out-" + summary));
    fs::remove(Directory() / "timeline.svg");
  }
}

// The answer names no files before they exist.
TEST_F(ResultsTest, WithoutADirectoryAFigureThatCannotBeWrittenNamesNoFiles) {
  const Outcome outcome = Run(plan_ + "--figure /proc/timeline.svg");
  if (outcome.err.find("no figures") != std::string::npos) GTEST_SKIP() << "no npm";
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, Not(HasSubstr("results are in")));
}

TEST_F(ResultsTest, AFailedFirstRunLeavesNothing) {
  EXPECT_EQ(Run(plan_ + "--deadline 0.001 -o out").status, 3);
  EXPECT_FALSE(fs::exists(Directory() / "out"));
  EXPECT_EQ(Run(plan_ + "--deadline 0.001 -o n1/n2/n3/").status, 3);
  EXPECT_FALSE(fs::exists(Directory() / "n1"));
  fs::create_directory(Directory() / "out");
  EXPECT_EQ(Run(plan_ + "-o out >/dev/full").status, 1);
  EXPECT_TRUE(fs::is_empty(Directory() / "out"));
}

TEST_F(ResultsTest, ARunReplacesOnlyWhatAnEarlierRunWrote) {
  RunWell(plan_ + "--slowdown 7 -o out");
  Write("out/notes.txt", "mine");
  Write("out/plans/mine.json", "{}");
  RunWell(plan_ + "-o out");
  EXPECT_THAT(Results("out"), ElementsAre("notes.txt", "plans/mine.json", "plans/no-slowdown.json",
                                          "plans/slowdown-7.json", "summary.json", "trace.json"));
}

// A training may follow a plan by its path.
TEST_F(ResultsTest, PlansOfAnEarlierRunStay) {
  RunWell(plan_ + "--slowdown 7 -o out");
  const std::string followed = Read("out/plans/slowdown-7.json");
  EXPECT_THAT(RunWell(plan_ + "-o out"),
              HasSubstr("1 plan of an earlier run: plans/slowdown-7.json (not removed"));
  EXPECT_EQ(Read("out/plans/slowdown-7.json"), followed);
  EXPECT_THAT(RunWell("show out"), Not(HasSubstr("slowdown-7")));
  RunWell(std::string("plan profile.csv") + kJob +
          "--stops 0 --no-frontier --slowdown 7 --max-switches 1 -o out");
  EXPECT_NE(Read("out/plans/slowdown-7.json"), followed);
}

TEST_F(ResultsTest, APlanThatSomebodyPutThereStays) {
  RunWell(plan_ + "--slowdown 7 -o other");
  RunWell(plan_ + "-o out");
  const std::string mine = Read("other/plans/slowdown-7.json");
  Write("out/plans/slowdown-7.json", mine);
  ExpectComplaint(Run(plan_ + "--slowdown 7 -o out"), 2,
                  "slowdown-7.json: already exists and was not written by an earlier run");
  EXPECT_EQ(Read("out/plans/slowdown-7.json"), mine);
}

TEST_F(ResultsTest, AnEmulationThatFailsKeepsTheEarlierOne) {
  const std::string command = std::string("emulate profile.csv") + kJob + "--iterations 2 -o out ";
  RunWell(command);
  const Contents before = Of("out");
  ExpectComplaint(Run(command + "--events absent.toml"), 2, "absent.toml");
  EXPECT_EQ(Of("out"), before);
  ExpectComplaint(Run(command + ">/dev/full"), 1, "standard output");
  EXPECT_EQ(Of("out"), before);
  Write("out/notes.txt", "mine");
  RunWell(command + "--trace 1");
  EXPECT_THAT(Files("out"), ElementsAre("emulation.json", "iterations.csv", "notes.txt",
                                        "pp_ranks.csv", "trace.json"));
}

TEST_F(ResultsTest, AKilledRunKeepsTheEarlierResults) {
  RunWell(plan_ + "--slowdown 7 -o out");
  Contents expected = Of("out");
  for (const char* signal : {"TERM", "KILL"}) {
    const Outcome outcome =
        Run("--version; " + Hanging(fmt::format("kill -{} $run; wait $run", signal)));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    Contents left = Of("out");
    EXPECT_EQ(left.erase(".perseus-lock"), 1u);
    EXPECT_EQ(left, expected);
    // The next run cleans up, even if it fails.
    EXPECT_EQ(Run(plan_ + "--deadline 0.001 -o out").status, 3);
    EXPECT_EQ(Of("out"), expected);
  }
}

TEST_F(ResultsTest, TwoRunsDoNotWriteIntoOneDirectory) {
  RunWell(plan_ + "--slowdown 7 -o out");
  const Contents before = Of("out");
  const Outcome outcome = Run(
      "--version; " +
      Hanging(fmt::format(
          "'{0}' {1} -o out; echo status $?; '{0}' emulate profile.csv {2} -o out; echo status $?; "
          "kill $run; wait $run",
          PERSEUS_PROGRAM, plan_, kJob)));
  EXPECT_THAT(outcome.err, HasSubstr("perseus: out: another run of perseus is about to write"));
  EXPECT_THAT(outcome.out, HasSubstr("status 1\nstatus 1\n"));
  RunWell(plan_ + "--deadline 10 -o other");
  EXPECT_EQ(Run(plan_ + "--deadline 0.001 -o out").status, 3);
  EXPECT_EQ(Of("out"), before);
}

// Creates every state in which a run may be killed during the replacement, as results.h describes
// it. Each time, the next run fails. So the results that it leaves are the complete results of the
// killed run.
TEST_F(ResultsTest, TheNextRunEndsAReplacementThatWasKilled) {
  RunWell(plan_ + "--slowdown 7 -o earlier");
  RunWell(plan_ + "--slowdown 9 -o later");
  Write("bad.csv", "no profile");
  Write("earlier/notes.txt", "mine");
  Write("earlier/plans/mine.json", "{}");
  Contents later = Of("later");
  later["plans/slowdown-7.json"] = Read("earlier/plans/slowdown-7.json");
  later["notes.txt"] = "mine";
  later["plans/mine.json"] = "{}";

  std::vector<std::string> steps{"mv out/summary.json out/.perseus-new/earlier.json"};
  for (const std::string& name : Files("later")) {
    if (name != "summary.json") steps.push_back("mv out/.perseus-new/" + name + " out/" + name);
  }
  for (const std::string& name : Files("earlier")) {
    if (!later.contains(name)) steps.push_back("rm out/" + name);
  }
  steps.push_back("mv out/.perseus-new/summary.json out");

  for (std::size_t done = 0; done <= steps.size(); ++done) {
    fs::remove_all(Directory() / "out");
    fs::copy(Directory() / "earlier", Directory() / "out", fs::copy_options::recursive);
    fs::copy(Directory() / "later", Directory() / "out/.perseus-new", fs::copy_options::recursive);
    for (std::size_t i = 0; i < done; ++i) Shell(steps[i]);
    if (done == 1 || done + 1 == steps.size()) {
      ExpectComplaint(Run("show out"), 1, "out: its results are incomplete");
      ExpectComplaint(Run("report out -o page.html"), 1, "out: its results are incomplete");
    }
    EXPECT_EQ(Run(std::string("plan bad.csv") + kJob + "-o out").status, 2);
    EXPECT_EQ(Of("out"), later) << done << " steps";
    EXPECT_FALSE(fs::exists(Directory() / "out/.perseus-new"));
  }
}

// A replacement replaces no files that appeared after it began.
TEST_F(ResultsTest, TheEndOfAReplacementReplacesNoFileOfTheUser) {
  RunWell(plan_ + "-o out");
  RunWell(plan_ + "--slowdown 9 -o later");
  fs::rename(Directory() / "later", Directory() / "out/.perseus-new");
  Write("out/plans/slowdown-9.json", "mine");
  ExpectComplaint(Run(plan_ + "-o out"), 2, "out/plans/slowdown-9.json: already exists");
  EXPECT_EQ(Read("out/plans/slowdown-9.json"), "mine");
  Shell("rm out/plans/slowdown-9.json");
  RunWell(plan_ + "-o out");
}

// The directory in which the program runs stays the same directory. It may be a mount point.
TEST_F(ResultsTest, TheWorkingDirectoryCanBeTheDirectory) {
  Shell("mkdir out && cd out && mv ../profile.csv . && for i in 1 2; do '" PERSEUS_PROGRAM "' " +
        plan_ + "-o . >/dev/null || exit; done; [ -e summary.json ]");
  EXPECT_THAT(Results("out"),
              ElementsAre("plans/no-slowdown.json", "profile.csv", "summary.json", "trace.json"));
}

TEST_F(ResultsTest, TheNextRunRemovesWhatAKilledRunHadWritten) {
  RunWell(plan_ + "-o out");
  const Contents before = Of("out");
  Write("out/.perseus-new/plans/slowdown-7.json", "{}");
  EXPECT_EQ(Run(std::string("emulate profile.csv") + kJob + "-o out").status,
            2);  // trace.json belongs to the plan.
  EXPECT_EQ(Of("out"), before);
}

TEST_F(ResultsTest, LinksAreNotFollowedOutOfTheDirectory) {
  fs::create_directories(Directory() / "elsewhere");
  for (const char* link : {"plans", ".perseus-new", ".perseus-lock"}) {
    fs::create_directory(Directory() / "out");
    fs::create_directory_symlink("../elsewhere", Directory() / "out" / link);
    const Outcome outcome = Run(plan_ + "-o out");
    EXPECT_NE(outcome.status, 0) << link;
    EXPECT_THAT(outcome.err, HasSubstr("out")) << link;
    EXPECT_THAT(Files("elsewhere"), IsEmpty()) << link;
    EXPECT_TRUE(fs::is_symlink(Directory() / "out" / link));
    fs::remove_all(Directory() / "out");
  }
  // The directory itself may be a link.
  fs::create_directory_symlink("elsewhere", Directory() / "out");
  RunWell(plan_ + "-o out");
  EXPECT_THAT(Files("elsewhere"), Contains("summary.json"));
  EXPECT_THAT(Files("elsewhere"), Not(Contains(".perseus-lock")));
}

TEST_F(ResultsTest, ADirectoryOfTheUserIsNotRemoved) {
  RunWell(plan_ + "-o out");
  Shell("rm out/trace.json; mkdir -p out/trace.json; echo mine > out/trace.json/mine");
  const Contents before = Of("out");
  ExpectComplaint(Run(plan_ + "-o out"), 2, "out/trace.json: is a directory");
  EXPECT_EQ(Of("out"), before);
}

}  // namespace
}  // namespace perseus
