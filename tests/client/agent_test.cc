// Tests the library with a real agent on virtual GPUs: planned clocks, and the clocks after
// failures.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "perseus/base/file.h"
#include "perseus/base/file_descriptor.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"
#include "tests/client/client_test.h"
#include "tests/support/results.h"

namespace perseus {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(ClientTest, SetsTheClocksOfThePlanAndReturnsTheGpu) {
  StartAgent();
  RankSession rank(PlaceWithPlan(PlanWithClocks({1410, 1200, 1005, 1305})));
  EXPECT_EQ(rank.Counters().may_set_clocks, 1);
  for (int step = 0; step < 2; ++step) {
    perseus_step_begin(rank.get());
    EXPECT_TRUE(LockBecomes(0, 1410));
    rank.Run(PERSEUS_FORWARD, 0);
    EXPECT_TRUE(LockBecomes(0, 1200));  // The clock changes before the next instruction begins.
    rank.Run(PERSEUS_FORWARD, 1);
    EXPECT_TRUE(LockBecomes(0, 1005));
    rank.Run(PERSEUS_BACKWARD, 0);
    EXPECT_TRUE(LockBecomes(0, 1305));
    rank.Run(PERSEUS_BACKWARD, 1);
    perseus_step_end(rank.get());
    EXPECT_TRUE(LockBecomes(0, 1305));
  }
  EXPECT_EQ(rank.Counters().clock_requests, 8U);
  EXPECT_EQ(rank.Counters().follows_plan, 1);
  EXPECT_EQ(rank.Counters().steps_off_plan, 0U);
  EXPECT_THAT(rank.Warnings(), IsEmpty());
  rank.Close();
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
}

TEST_F(ClientTest, RequestsOnlyChanges) {
  StartAgent();
  RankSession rank(PlaceWithPlan(PlanWithClocks({1410, 1410, 1200, 1200})));
  for (int step = 0; step < 10; ++step) rank.RunStep(2);
  EXPECT_EQ(rank.Counters().clock_requests, 20U);
}

TEST_F(ClientTest, DeclaresItsPlannedSlowdown) {
  StartAgent();
  const plan_file::PlanFile plan = PlanGpipe(1, 2);
  RankSession rank(PlaceWithPlan(plan));
  rank.RunStep(2);
  const double slowdown = static_cast<double>(plan.time) / static_cast<double>(plan.baseline_time);
  ASSERT_GT(slowdown, 1);
  EXPECT_TRUE(Comes([&] { return Listed(0).at("slowdown") == slowdown; })) << Listed(0).dump();
}

TEST_F(ClientTest, AnotherOrderGetsTheDefaultClocksUntilTheNextStep) {
  StartAgent();
  RankSession rank(PlaceWithPlan(PlanWithClocks({1410, 1200, 1005, 1305})));
  perseus_step_begin(rank.get());
  rank.Run(PERSEUS_FORWARD, 0);
  EXPECT_TRUE(LockBecomes(0, 1200));
  rank.Begin(PERSEUS_BACKWARD, 0);
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
  rank.End();
  perseus_step_end(rank.get());
  rank.RunStep(3);  // The number of microbatches differs again. No second warning.
  EXPECT_EQ(rank.Counters().steps_off_plan, 2U);
  EXPECT_EQ(rank.Warnings(),
            "step 0, instruction 1: the plan has forward of microbatch 1, and training began "
            "backward of microbatch 0; the default clocks are used until the next step (is the "
            "plan for this schedule?)\n");
  EXPECT_EQ(rank.Counters().follows_plan, 0);
  rank.RunStep(2);
  EXPECT_EQ(rank.Counters().follows_plan, 1);
  EXPECT_TRUE(LockBecomes(0, 1305));
}

TEST_F(ClientTest, EvaluationRunsAtTheDefaultClocks) {
  StartAgent();
  RankSession rank(PlaceWithPlan(PlanWithClocks({1410, 1005})));
  EXPECT_TRUE(EndsStepAt(rank, 1005));
  rank.Run(PERSEUS_FORWARD, 0);
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
  EXPECT_TRUE(EndsStepAt(rank, 1005));
  // An evaluation makes no calls, so the default clocks return soon.
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
  EXPECT_EQ(rank.Counters().steps_off_plan, 0U);
  EXPECT_THAT(rank.Warnings(), IsEmpty());
}

// A benchmark or a test of the GPU's health runs between two steps.
TEST_F(ClientTest, AReleasedClockIsTheDefaultClockAtOnce) {
  StartAgent();
  RankSession rank(PlaceWithPlan(PlanWithClocks({1410, 1005})));
  perseus_release_clock(rank.get());  // There is nothing to release.
  for (int step = 0; step < 3; ++step) {
    EXPECT_TRUE(EndsStepAt(rank, 1005));
    perseus_release_clock(rank.get());
    EXPECT_EQ(Lock(0), std::nullopt);
    perseus_release_clock(rank.get());
  }
  EXPECT_EQ(rank.Counters().steps_off_plan, 0U);
  EXPECT_THAT(rank.Warnings(), IsEmpty());
  KillAgent();
  perseus_release_clock(rank.get());
  rank.Close();
  perseus_release_clock(rank.get());
}

TEST_F(ClientTest, UnavailableClocksAreRoundedUpWithOneWarning) {
  StartAgent();
  RankSession rank(PlaceWithPlan(PlanWithClocks({1406, 1001})));
  perseus_step_begin(rank.get());
  EXPECT_TRUE(LockBecomes(0, 1410));
  rank.Run(PERSEUS_FORWARD, 0);
  EXPECT_TRUE(LockBecomes(0, 1005));
  rank.Run(PERSEUS_BACKWARD, 0);
  perseus_step_end(rank.get());
  EXPECT_EQ(
      rank.Warnings(),
      "the GPU has no clock of 1406 MHz, which the plan has; the nearest faster clock is used "
      "(plan with a profile of this type of GPU)\n");
}

TEST_F(ClientTest, ABadPlanIsAWarningAndTrainingContinues) {
  StartAgent();
  RankSession::Place place = PlaceWithPlan(PlanGpipe(2, 2), 2);
  place.gpu = Uuid(2);
  RankSession no_such_rank(place);
  EXPECT_THAT(no_such_rank.Warnings(), HasSubstr("the plan has ranks 0 to 1, and this is rank 2"));
  no_such_rank.RunStep(2);
  EXPECT_EQ(no_such_rank.Counters().follows_plan, 0);
  EXPECT_EQ(no_such_rank.Counters().steps, 1U);

  RankSession rank(Place());
  Write("torn.json", plan_file::FormatPlan(PlanGpipe(1, 2)).substr(0, 500));
  EXPECT_EQ(perseus_use_plan(rank.get(), (directory_ / "torn.json").c_str()), -1);
  EXPECT_THAT(rank.Warnings(), HasSubstr("torn.json"));
  EXPECT_EQ(perseus_use_plan(rank.get(), (directory_ / "none.json").c_str()), -1);
  EXPECT_THAT(rank.Warnings(), HasSubstr("none.json"));
}

TEST_F(ClientTest, PlansMayBeChangedBetweenSteps) {
  StartAgent();
  RankSession rank(PlaceWithPlan(PlanWithClocks({1410, 1005})));
  rank.RunStep(1);
  Write("other.json", plan_file::FormatPlan(PlanWithClocks({1200, 1305})));
  EXPECT_EQ(perseus_use_plan(rank.get(), (directory_ / "other.json").c_str()), 0);
  EXPECT_TRUE(LockBecomes(0, 1005));
  EXPECT_TRUE(EndsStepAt(rank, 1305));
  EXPECT_EQ(perseus_use_plan(rank.get(), nullptr), 0);
  perseus_step_begin(rank.get());
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
  EXPECT_EQ(rank.Counters().follows_plan, 0);
}

TEST_F(ClientTest, AnExpiredPlanIsNotFollowed) {
  StartAgent();
  RankSession::Place place = PlaceWithPlan(PlanWithClocks({1410, 1005}));
  // The second time is too far in the past for 64-bit nanoseconds.
  for (const std::int64_t at : {std::int64_t{std::time(nullptr)} - 10, -10'000'000'000}) {
    place.plan_expires_at = at;
    RankSession rank(place);
    rank.RunStep(1);
    EXPECT_EQ(rank.Counters().follows_plan, 0) << at;
    EXPECT_EQ(rank.Counters().clock_requests, 0U) << at;
    EXPECT_THAT(rank.Warnings(), HasSubstr("has expired")) << at;
  }
}

// ---- The agent ----

TEST_F(ClientTest, WithoutAnAgentItMeasuresOnly) {
  RankSession::Place place = PlaceWithPlan(PlanWithClocks({1410, 1005}));
  place.job_directory = (directory_ / "job").string();
  RankSession rank(place);
  for (int i = 0; i < 3; ++i) rank.RunStep(1);
  EXPECT_EQ(rank.Counters().may_set_clocks, 0);
  EXPECT_EQ(rank.Counters().clock_requests, 0U);
  EXPECT_THAT(rank.Warnings(), HasSubstr("clocks are not set, and steps only measured"));
  rank.Close();
  protocol::RankLogReader log(protocol::RankLogPath(place.job_directory, {0, 0, 0}));
  const auto records = ValueOf(log.ReadNew());
  ASSERT_THAT(records, SizeIs(5));
  EXPECT_TRUE(std::get<protocol::Remark>(records[4]).IsEnd());
  EXPECT_FALSE(std::get<protocol::RankHeader>(records[0]).may_set_clocks);
  EXPECT_EQ(std::get<protocol::RankHeader>(records[0]).gpu, Uuid(0));
  const auto& step = std::get<protocol::RanStep>(records[3]);
  EXPECT_EQ(step.step, 2);
  EXPECT_EQ(step.instructions.at(1).frequency_mhz, 0);
}

TEST_F(ClientTest, AGpuWithAnotherHolderIsOnlyMeasured) {
  StartAgent();
  RankSession first(Place());
  RankSession second(Place());
  EXPECT_EQ(first.Counters().may_set_clocks, 1);
  EXPECT_EQ(second.Counters().may_set_clocks, 0);
  EXPECT_THAT(second.Warnings(), HasSubstr("the agent refuses"));
}

TEST_F(ClientTest, ALostAgentIsFoundAgain) {
  StartAgent();
  RankSession rank(PlaceWithPlan(PlanWithClocks({1410, 1005})));
  EXPECT_TRUE(EndsStepAt(rank, 1005));
  KillAgent();
  // The library sets these values one after another.
  EXPECT_TRUE(Comes([&] { return rank.Counters().may_set_clocks == 0; }));
  EXPECT_TRUE(Comes([&] { return rank.Counters().agent_losses == 1; }));
  EXPECT_TRUE(Comes([&] { return rank.Counters().warnings >= 1; }));
  const std::string warnings = rank.Warnings();
  EXPECT_THAT(warnings, HasSubstr("the connection to the agent is lost"));
  // No process remains that could restore the GPU.
  EXPECT_THAT(warnings, HasSubstr("the GPU keeps the last clock"));
  EXPECT_EQ(Lock(0), 1005);
  rank.RunStep(1);
  // The next agent restores the GPU, and then grants a new lease.
  StartAgent();
  EXPECT_TRUE(Comes([&] { return rank.Counters().may_set_clocks == 1; }));
  EXPECT_TRUE(EndsStepAt(rank, 1005));
  EXPECT_EQ(rank.Counters().steps_off_plan, 0U);
}

TEST_F(ClientTest, ALeaseEndedByHandIsNotRequestedAgain) {
  StartAgent();
  RankSession rank(PlaceWithPlan(PlanWithClocks({1410, 1005})));
  EXPECT_TRUE(EndsStepAt(rank, 1005));
  RunProgram({"gpu", "release", Uuid(0), "--socket", socket()});
  EXPECT_TRUE(Comes([&] { return rank.Counters().may_set_clocks == 0; }));
  EXPECT_THAT(rank.Warnings(), HasSubstr("the lease of the GPU was ended"));
  rank.RunStep(1);
  EXPECT_EQ(Listed(0).at("lease"), "");
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
}

// ---- The user's own agent (PERSEUS_AGENT=own) ----

class OwnAgentTest : public ClientTest {
 protected:
  OwnAgentTest() {
    ::setenv("XDG_RUNTIME_DIR", directory_.path().c_str(), 1);
    ::setenv("PERSEUS_PROGRAM", PERSEUS_PROGRAM, 1);
  }
  ~OwnAgentTest() override {
    ::unsetenv("XDG_RUNTIME_DIR");
    ::unsetenv("PERSEUS_PROGRAM");
    // The agent would end by itself after ten seconds, but the agent's directory no longer exists
    // at that time.
    const auto listed = AgentProcesses();
    for (const pid_t agent : listed) ::kill(agent, SIGTERM);
    Comes([&] { return AgentProcesses().empty(); });
  }
  RankSession::Place OwnPlace(int rank) const {
    RankSession::Place place = Place(rank);
    place.socket = "own";
    return place;
  }
  // Returns the agents whose command line names the directory of this test.
  std::vector<pid_t> AgentProcesses() const {
    std::vector<pid_t> agents;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const std::string command = ReadFile(entry.path() / "cmdline").value_or("");
      if (command.find(directory_.path().string() + "/perseus/agent.sock") != std::string::npos &&
          command.find("--exit-when-idle") != std::string::npos && command.find("sh") != 0) {
        agents.push_back(std::stoi(name));
      }
    }
    return agents;
  }
};

TEST_F(OwnAgentTest, EightRanksShareOneAgent) {
  std::vector<pid_t> ranks;
  ranks.reserve(kGpus);
  for (int i = 0; i < kGpus; ++i) {
    ranks.push_back(StartChild([this, i] {
      RankSession rank(OwnPlace(i));
      if (rank.Counters().may_set_clocks != 1) return 1;
      const bool is_one = AgentProcesses().size() == 1;
      rank.Close();
      return is_one ? 0 : 2;
    }));
  }
  for (const pid_t rank : ranks) EXPECT_EQ(WaitFor(rank), 0) << Read("perseus/agent.log");
  for (int i = 0; i < kGpus; ++i) EXPECT_TRUE(LockBecomes(i, std::nullopt));
}

TEST_F(OwnAgentTest, AKilledRankLosesItsClockHereToo) {
  RankSession::Place place = PlaceWithPlan(PlanWithClocks({1410, 1005}));
  place.socket = "own";
  const pid_t child = StartChild([place] {
    RankSession rank(place);
    perseus_step_begin(rank.get());
    for (;;) ::pause();
    return 0;
  });
  EXPECT_TRUE(LockBecomes(0, 1410));
  ::kill(child, SIGKILL);
  WaitFor(child);
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
}

TEST_F(OwnAgentTest, ReportsWhyTheAgentDoesNotStart) {
  ::setenv("PERSEUS_PROGRAM", "/bin/false", 1);
  RankSession rank(OwnPlace(0));
  EXPECT_EQ(rank.Counters().may_set_clocks, 0);
  EXPECT_THAT(rank.Warnings(), HasSubstr("PERSEUS_PROGRAM names another program"));
}

TEST_F(OwnAgentTest, ADirectoryWithOtherWritersIsNotTrusted) {
  std::filesystem::create_directory(directory_ / "perseus");
  std::filesystem::permissions(directory_ / "perseus", std::filesystem::perms::all);
  RankSession rank(OwnPlace(0));
  EXPECT_EQ(rank.Counters().may_set_clocks, 0);
  EXPECT_THAT(rank.Warnings(), HasSubstr("is not a directory of this user's alone"));
}

// ---- The end of a process ----

TEST_F(ClientTest, AKilledRankLosesItsClock) {
  StartAgent();
  const RankSession::Place place = PlaceWithPlan(PlanWithClocks({1410, 1005}));
  const pid_t child = StartChild([&] {
    RankSession rank(place);
    perseus_step_begin(rank.get());
    rank.Run(PERSEUS_FORWARD, 0);
    rank.Begin(PERSEUS_BACKWARD, 0);
    for (;;) ::pause();
    return 0;
  });
  EXPECT_TRUE(LockBecomes(0, 1005));
  ::kill(child, SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(WaitFor(child)));
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
}

TEST_F(ClientTest, EightRanksOfANodeFollowThePlan) {
  StartAgent();
  constexpr int kSteps = 20;
  const plan_file::PlanFile plan = PlanGpipe(kGpus, 4);
  const RankSession::Place first = PlaceWithPlan(plan);
  std::vector<pid_t> ranks;
  for (int i = 0; i < kGpus; ++i) {
    RankSession::Place place = first;
    place.pp_rank = i;
    place.gpu = std::to_string(i);
    place.job_directory = (directory_ / "job").string();
    ranks.push_back(StartChild([place] {
      RankSession rank(place);
      for (int step = 0; step < kSteps; ++step) rank.RunStep(4);
      const perseus_counters counters = rank.Counters();
      const bool is_well = counters.may_set_clocks == 1 && counters.steps == kSteps &&
                           counters.steps_off_plan == 0 && rank.Warnings().empty();
      rank.Close();
      return is_well ? 0 : 1;
    }));
  }
  for (const pid_t rank : ranks) EXPECT_EQ(WaitFor(rank), 0);
  for (int i = 0; i < kGpus; ++i) {
    EXPECT_TRUE(LockBecomes(i, std::nullopt));
    protocol::RankLogReader log(protocol::RankLogPath(directory_ / "job", {0, i, 0}));
    const auto records = ValueOf(log.ReadNew());
    ASSERT_THAT(records, SizeIs(1 + kSteps + 1));  // The header, the steps, and the end.
    const auto& header = std::get<protocol::RankHeader>(records.front());
    EXPECT_EQ(header.gpu, Uuid(i));
    EXPECT_TRUE(header.may_set_clocks);
    EXPECT_FALSE(header.sm_clocks_mhz.empty());
    const auto& last = std::get<protocol::RanStep>(records[kSteps]);
    ASSERT_THAT(last.instructions, SizeIs(8));
    for (std::size_t at = 0; at < 8; ++at) {
      EXPECT_EQ(last.instructions[at].frequency_mhz,
                ClockOf(plan, at, static_cast<std::size_t>(i)));
    }
  }
}

TEST_F(ClientTest, AForkedChildHasADeadSession) {
  StartAgent();
  RankSession rank(PlaceWithPlan(PlanWithClocks({1410, 1005})));
  rank.RunStep(1);
  const pid_t child = StartChild([&] {
    for (int i = 0; i < 100; ++i) rank.RunStep(1);
    const bool did_nothing = rank.Counters().steps == 1;
    rank.Close();
    // The child has none of the descriptors of the parent's session, such as the socket of the
    // agent.
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code ignored;
      const auto target = std::filesystem::read_symlink(entry, ignored).string();
      if (target.find("socket:") == 0 || target.find("[eventfd]") != std::string::npos) return 2;
    }
    return did_nothing ? 0 : 1;
  });
  EXPECT_EQ(WaitFor(child), 0);
  EXPECT_EQ(rank.Counters().may_set_clocks, 1);
  EXPECT_TRUE(EndsStepAt(rank, 1005));
  EXPECT_EQ(rank.Counters().steps, 2U);
}

TEST_F(ClientTest, AForkedChildMayExitAndOpenItsOwn) {
  StartAgent();
  RankSession rank(PlaceWithPlan(PlanWithClocks({1410, 1005})));
  const pid_t child = ::fork();
  if (child == 0) {
    RankSession own({socket(), devices(), Uuid(1), 0, (directory_ / "plan.json").string(), "", 0});
    own.RunStep(1);
    std::exit(own.Counters().may_set_clocks == 1 ? 0 : 1);  // Both sessions are still open.
  }
  EXPECT_EQ(WaitFor(child), 0);
  EXPECT_EQ(rank.Counters().may_set_clocks, 1);
}

// A child that is forked while a session opens or closes may have unknown copies of the session's
// descriptors. A duplicate has the same effect as such a copy.
TEST_F(ClientTest, ACopyOfADescriptorHoldsNeitherTheLeaseNorTheLog) {
  StartAgent();
  RankSession::Place place = Place();
  place.job_directory = (directory_ / "job").string();
  RankSession rank(place);
  std::vector<FileDescriptor> copies;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry, ignored).string();
    if (!target.starts_with("socket:") && !target.ends_with(".jsonl")) continue;
    copies.emplace_back(::dup(std::stoi(entry.path().filename().string())));
  }
  EXPECT_GE(copies.size(), 2U);
  rank.Close();
  EXPECT_TRUE(Comes([&] { return Listed(0).at("lease") == ""; }));
  RankSession next(place);
  EXPECT_EQ(next.Warnings(), "");
}

TEST_F(ClientTest, ExitWithoutCloseWritesTheRecordAndReturnsTheGpu) {
  StartAgent();
  RankSession::Place place = PlaceWithPlan(PlanWithClocks({1410, 1005}));
  place.job_directory = (directory_ / "job").string();
  const pid_t child = ::fork();
  if (child == 0) {
    auto* rank = new RankSession(place);
    for (int i = 0; i < 5; ++i) rank->RunStep(1);
    std::exit(7);
  }
  const int status = WaitFor(child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
  protocol::RankLogReader log(protocol::RankLogPath(place.job_directory, {0, 0, 0}));
  EXPECT_THAT(ValueOf(log.ReadNew()), SizeIs(6)) << "it does not say that training has ended";
}

}  // namespace
}  // namespace perseus
