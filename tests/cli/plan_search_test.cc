// Tests how `perseus plan` and `perseus schedule search` search, from the view of a user. First
// plans come soon and then get better. Ctrl-C ends the search with complete results. Only the
// effort decides which plans are found.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <map>
#include <sstream>
#include <thread>

#include "tests/cli/program.h"

extern char** environ;

namespace perseus {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A run of the program in the background, in its own directory, with the default signals.
class BackgroundRun {
 public:
  // The words of `arguments` have no blanks. Output and errors go to stdout.txt and stderr.txt.
  BackgroundRun(const std::filesystem::path& directory, const std::string& arguments) {
    std::istringstream words("perseus " + arguments);
    std::vector<std::string> owned;
    for (std::string word; words >> word;) owned.push_back(word);
    std::vector<char*> argv;
    for (std::string& word : owned) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    posix_spawnattr_setsigdefault(&attributes, &interrupt);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addchdir_np(&files, directory.c_str());
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "stdout.txt", flags, 0600);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "stderr.txt", flags, 0600);
    EXPECT_EQ(posix_spawn(&child_, PERSEUS_PROGRAM, &files, &attributes, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  BackgroundRun(const BackgroundRun&) = delete;
  BackgroundRun& operator=(const BackgroundRun&) = delete;
  ~BackgroundRun() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    Wait();
  }

  void Interrupt() const { kill(child_, SIGINT); }
  // The status of waitpid.
  int Wait() {
    int status = -1;
    waitpid(child_, &status, 0);
    child_ = -1;
    return status;
  }
  bool HasEnded() const {
    if (child_ <= 0) return true;
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == child_;
  }

 private:
  pid_t child_ = -1;
};

class PlanSearchTest : public CommandTest {
 protected:
  PlanSearchTest() { MakeProfile(); }

  // Waits until standard error of the run has the text. Returns false if the run ends before that.
  bool WaitFor(const BackgroundRun& run, const std::string& text) const {
    while (true) {
      const bool has_ended = run.HasEnded();
      if (Read("stderr.txt").find(text) != std::string::npos) return true;
      if (has_ended) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  // Runs the program, and interrupts it when standard error has the text `progress`. On a busy
  // machine, the interrupt may come after the end of the search. So this function repeats the run
  // until standard output has the text `sign`. In each run, the results are complete, or the
  // interrupt ends the program.
  void InterruptAt(const std::string& progress, const std::string& sign,
                   const std::string& arguments) const {
    for (int attempt = 0; attempt < 20; ++attempt) {
      BackgroundRun run(Directory(), arguments + " --progress -o results");
      ASSERT_TRUE(WaitFor(run, progress)) << Read("stderr.txt");
      run.Interrupt();
      const int status = run.Wait();
      if (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) continue;
      ASSERT_TRUE(WIFEXITED(status));
      ASSERT_EQ(WEXITSTATUS(status), 0) << Read("stderr.txt");
      if (Read("stdout.txt").find(sign) != std::string::npos) return;
    }
    FAIL() << "no run was interrupted in time: " << Read("stdout.txt");
  }

  std::map<std::string, std::string> Contents(const std::string& folder) const {
    std::map<std::string, std::string> contents;
    for (const std::string& name : Files(folder)) contents[name] = Read(folder + "/" + name);
    return contents;
  }

  const std::string plan_ = std::string("plan profile.csv") + kJob + "--stops 0 --per-instruction ";
};

TEST_F(PlanSearchTest, ProgressPrintsEachPlanAndKeepsTheOutputPure) {
  const Outcome outcome = Run(plan_ + "--slowdown 5 --json --progress");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err, StartsWith("no slowdown: "));
  EXPECT_THAT(outcome.err, HasSubstr("\n5 % slowdown: "));
  EXPECT_THAT(outcome.err, HasSubstr("\nleast energy: "));
  EXPECT_TRUE(nlohmann::json::accept(outcome.out));
  EXPECT_EQ(outcome.out, RunWell(plan_ + "--slowdown 5 --json"));
}

TEST_F(PlanSearchTest, TheNumberOfCoresChangesNoResult) {
  // The first core that this process may use.
  const std::string one_core =
      "--version; taskset -c $(sed -n 's/^Cpus_allowed_list:[[:space:]]*\\([0-9]*\\).*/\\1/p' "
      "/proc/self/status) '" PERSEUS_PROGRAM "' ";
  for (const std::string& run :
       {plan_, std::string("schedule search profile.csv --microbatches 8 --more 0,1 "
                           "--blocking-power 84 ")}) {
    RunWell(run + "-o all");
    RunWell(one_core + run + "-o one");
    EXPECT_EQ(Contents("one"), Contents("all"));
    RunWell("--version; rm -r one all");
  }
}

TEST_F(PlanSearchTest, AnInterruptKeepsTheBestSchedulesSoFar) {
  ASSERT_NO_FATAL_FAILURE(
      InterruptAt("+0: ", "Stopped early",
                  "schedule search profile.csv --microbatches 200 --blocking-power 84"));
  const auto search = nlohmann::json::parse(Read("results/search.json"));
  EXPECT_EQ(search["stopped_early"], true);
  ASSERT_FALSE(search["rows"].empty());
  EXPECT_LE(search["rows"][0]["time_s"], search["reference"]["time_s"]);
  EXPECT_NE(Read("results/more-0.csv"), "");
}

TEST_F(PlanSearchTest, AnInterruptEndsTheSearchOfAPlan) {
  ASSERT_NO_FATAL_FAILURE(
      InterruptAt("schedule auto: ", "Stopped early",
                  "plan profile.csv --schedule auto --max-in-flight 9 --microbatches 200 "
                  "--blocking-power 84 --stops 0 --no-frontier --per-instruction"));
  EXPECT_THAT(Read("results/summary.json"), HasSubstr("no-slowdown"));
}

TEST_F(PlanSearchTest, AnInterruptKeepsTheBestPlansSoFar) {
  ASSERT_NO_FATAL_FAILURE(
      InterruptAt("least energy: ", "Stopped early", plan_ + "--effort 1000000"));
  EXPECT_THAT(Read("stderr.txt"), HasSubstr("finishing with the best plans so far"));
  EXPECT_THAT(Read("results/summary.json"), HasSubstr("no-slowdown"));
  EXPECT_THAT(Read("results/summary.json"), HasSubstr("least-energy"));
  const auto summary = nlohmann::json::parse(Read("results/summary.json"));
  EXPECT_EQ(summary["stopped_early"], true);
  for (const auto& file : summary["files"]) {
    EXPECT_NE(Read("results/" + file.get<std::string>()), "") << file;
  }
  // The plans are at least as good as the plans of a first look.
  const nlohmann::json first = RunJson(plan_ + "--effort 0");
  EXPECT_LE(summary["plans"][0]["energy_j"].get<double>(),
            first["plans"][0]["energy_j"].get<double>());
}

TEST_F(PlanSearchTest, AnInterruptedSearchWithinLimitsConcludesNothing) {
  RunWell("synth --stages 16 -o large.csv");
  ASSERT_NO_FATAL_FAILURE(
      InterruptAt("no slowdown: ", "was stopped early, so the plans have none",
                  "plan large.csv --schedule 1f1b --microbatches 64 --blocking-power 84 "
                  "--stops 0 --no-frontier --effort 1000"));
  EXPECT_THAT(Read("stdout.txt"),
              AllOf(HasSubstr("The search within limits was stopped early, so the plans have none"),
                    Not(HasSubstr("keeps 95 %"))));
  if (!Read("results/report.html").empty()) {  // A build without npm has no page.
    EXPECT_THAT(Read("results/report.html"), HasSubstr("\"stopped_early\":true"));
    RunWell("report results -o again.html");
    EXPECT_THAT(Read("again.html"), HasSubstr("\"stopped_early\":true"));
  }
}

// Only few plans keep a limit. An interrupt must not replace these plans by plans without any
// change.
TEST_F(PlanSearchTest, AnInterruptLeavesPlansThatUseTheirLimit) {
  RunWell("synth --stages 16 -o large.csv");
  const std::string limited =
      "plan large.csv --schedule 1f1b --microbatches 64 --blocking-power 84 --stops 0 "
      "--no-frontier --max-switches 8 --slowdown 0 ";
  const auto saving_j = [](const nlohmann::json& summary) {
    return summary["baseline"]["energy_j"].get<double>() -
           summary["plans"][0]["energy_j"].get<double>();
  };
  const double whole_j = saving_j(RunJson(limited));
  ASSERT_NO_FATAL_FAILURE(InterruptAt("no slowdown: ", "Stopped early", limited + "--effort 1000"));
  const auto summary = nlohmann::json::parse(Read("results/summary.json"));
  EXPECT_EQ(summary["stopped_early"], true);
  EXPECT_EQ(summary["plans"][0]["max_switches"], 8);
  EXPECT_GT(saving_j(summary), 0.4 * whole_j);
}

TEST_F(PlanSearchTest, AFirstLookIsAShortSearchWithinLimits) {
  const std::string limited =
      "plan profile.csv --schedule 1f1b --microbatches 24 --blocking-power "
      "84 --stops 0 --no-frontier --max-switches 4 --slowdown 0 " +
      kInstantChanges;
  const auto energy_j = [](const nlohmann::json& summary) {
    return summary["plans"][0]["energy_j"].get<double>();
  };
  const double first_j = energy_j(RunJson(limited + "--effort 0"));
  EXPECT_LT(energy_j(RunJson(limited)), first_j);
  EXPECT_LT(first_j, RunJson(limited)["baseline"]["energy_j"].get<double>());
}

// The plans come first. The frontier follows, unless the user interrupts.
TEST_F(PlanSearchTest, AnInterruptLeavesTheFrontierOut) {
  RunWell("synth --stages 16 -o large.csv");
  ASSERT_NO_FATAL_FAILURE(
      InterruptAt("no slowdown: ", "Stopped early",
                  "plan large.csv --schedule 1f1b --microbatches 64 --blocking-power 84 --stops 0 "
                  "--per-instruction --effort 0 --exact-frontier"));
  const auto summary = nlohmann::json::parse(Read("results/summary.json"));
  EXPECT_FALSE(summary.contains("frontier"));
  EXPECT_THAT(summary["files"].dump(),
              AllOf(HasSubstr("least-energy.json"), Not(HasSubstr("frontier.csv"))));
}

TEST_F(PlanSearchTest, AnInterruptEndsTheSearchUnderACostOfChanges) {
  const std::string costly =
      "plan profile.csv --schedule 1f1b --microbatches 24 --blocking-power 84 --stops 0 "
      "--no-frontier --per-instruction --slowdown 0 --switch-cost 0,2 ";
  const auto energy_j = [](const nlohmann::json& summary) {
    return summary["plans"][0]["energy_j"].get<double>();
  };
  const double whole_j = energy_j(RunJson(costly));
  ASSERT_NO_FATAL_FAILURE(
      InterruptAt("no slowdown: ", "Stopped early", costly + "--effort 1000000"));
  // A search for few changes finds the better plan. After the interrupt, this search does not
  // begin.
  EXPECT_GT(energy_j(nlohmann::json::parse(Read("results/summary.json"))), whole_j);
}

TEST_F(PlanSearchTest, ASecondInterruptKeepsTheEarlierResults) {
  RunWell(plan_ + "--no-frontier -o results");
  auto before = Contents("results");
  bool was_killed = false;
  // The second interrupt may come too late. In this case the run has written complete results.
  for (int attempt = 0; attempt < 20 && !was_killed; ++attempt) {
    BackgroundRun run(Directory(),
                      "plan profile.csv --schedule 1f1b --microbatches 64 "
                      "--blocking-power 83.64 --per-instruction --effort 1000000 --progress "
                      "-o results");
    ASSERT_TRUE(WaitFor(run, "no slowdown: ")) << Read("stderr.txt");
    run.Interrupt();
    if (WaitFor(run, "finishing")) run.Interrupt();
    const int status = run.Wait();
    was_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGINT;
    if (was_killed) break;
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_EQ(WEXITSTATUS(status), 0);
    before = Contents("results");
  }
  EXPECT_TRUE(was_killed);
  // The next run removes the files that the killed run left beside the results.
  EXPECT_NE(Run(plan_ + "--deadline 0.0001 -o results").status, 0);
  EXPECT_EQ(Contents("results"), before);
}

}  // namespace
}  // namespace perseus
