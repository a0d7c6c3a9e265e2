// Tests `perseus trainer` alone, and its error messages.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>

#include "tests/closed_loop/closed_loop_job.h"

namespace perseus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Tests run without agents, so clocks never change.
class TrainerTest : public ClosedLoopJob {
 protected:
  TrainerTest() {
    RunWell("synth --gpu a100 --stages 4 -o truth.csv --work-scale 0.2 --noise 0");
    Write("a.toml",
          "gpus = 4\nclock = \"job.clock\"\n[gpu]\nprofile = \"truth.csv\"\nblocking_power_w = "
          "84.0\n");
    Write(
        "job.toml",
        "profile = \"truth.csv\"\n[pipeline]\nschedule = \"1f1b\"\npp_ranks = 4\nmicrobatches = 4\n"
        "[gpu]\nblocking_power_w = 84.0\n");
  }
  void StartAlone(const std::string& flags) { trainer_ = Background(flags); }
  pid_t Background(const std::string& flags) {
    return Start("trainer --job job.toml --node a.toml --json --record record.csv " + flags +
                 " >trainer.out 2>trainer.err");
  }
};

// Nothing varies in this test. So, except for rounding, a step takes the time and energy of the
// plan's baseline.
TEST_F(TrainerTest, StepTakesTheBaselineTimeAndEnergy) {
  const std::string out = RunWell("plan --job job.toml --no-frontier --per-instruction -o out");
  const auto baseline = nlohmann::json::parse(Read("out/plans/no-slowdown.json")).at("baseline");
  const double time_s = baseline.at("time_s").get<double>();
  const double energy_j = baseline.at("energy_j").get<double>();
  const auto summary =
      RunJson("trainer --job job.toml --node a.toml --steps 4 --timeout 300 --record record.csv");
  EXPECT_EQ(summary.at("steps"), 4);
  EXPECT_EQ(summary.at("instructions"), 4 * 4 * 8);
  for (const TrueStep& step : TrueSteps()) {
    // Rounding costs at most 1 ns for each instruction on the longest path, at up to 4 * 500 W.
    EXPECT_NEAR(step.time_s, time_s, 1e-6);
    EXPECT_NEAR(step.energy_j, energy_j, 2e-3);
  }
}

TEST_F(TrainerTest, ARunWithoutAnAgentSaysThatItsPlanSavedNothing) {
  RunWell("plan --job job.toml --no-frontier --per-instruction -o out");
  const Outcome run = Run(
      "run --job-directory run --plan out/plans/no-slowdown.json -- " PERSEUS_PROGRAM
      " trainer --job job.toml --node a.toml --steps 4 --job-directory run --timeout 300 --json");
  EXPECT_THAT(run.err, AllOf(HasSubstr("16 of 16 steps of all ranks had a plan, 0 of them"),
                             HasSubstr("16 of these steps ran at the default clocks and saved")));
}

TEST_F(TrainerTest, SigtermEndsTheTrainerAfterTheStep) {
  StartAlone("");
  const virtual_gpu::VirtualNode node = OpenNode("a");
  ASSERT_TRUE(Comes([&] { return node.Look(3)->reading.is_running; })) << Read("trainer.err");
  EndTrainer();
  EXPECT_GE(Summary().at("steps"), 1) << Read("trainer.err");
  EXPECT_EQ(Read("trainer.err"), "");
  for (int gpu = 0; gpu < kGpusOfANode; ++gpu) EXPECT_EQ(node.Look(gpu)->worker_pid, 0);
}

TEST_F(TrainerTest, RankThatHangsIsNamed) {
  StartAlone("--timeout 12");
  const virtual_gpu::VirtualNode node = OpenNode("a");
  ASSERT_TRUE(Comes([&] { return node.Look(1)->reading.is_running; })) << Read("trainer.err");
  kill(node.Look(1)->worker_pid, SIGSTOP);
  AwaitTrainer();
  EXPECT_THAT(Read("trainer.err"), AllOf(HasSubstr("dp_rank 0, pp_rank 1 (process"),
                                         HasSubstr("did not end a step within 12 s")));
  EXPECT_THAT(Read("trainer.err"), Not(HasSubstr("pp_rank 2")));
  for (int gpu = 0; gpu < kGpusOfANode; ++gpu) EXPECT_EQ(node.Look(gpu)->worker_pid, 0);
}

TEST_F(TrainerTest, RankThatDiesIsNamed) {
  StartAlone("");
  const virtual_gpu::VirtualNode node = OpenNode("a");
  ASSERT_TRUE(Comes([&] { return node.Look(2)->reading.is_running; })) << Read("trainer.err");
  kill(node.Look(2)->worker_pid, SIGKILL);
  AwaitTrainer();
  EXPECT_THAT(Read("trainer.err"), AllOf(HasSubstr("dp_rank 0, pp_rank 2 (process"),
                                         HasSubstr("was killed by signal 9")));
}

TEST_F(TrainerTest, RankThatReceivesASignalNamesTheSender) {
  StartAlone("");
  const virtual_gpu::VirtualNode node = OpenNode("a");
  ASSERT_TRUE(Comes([&] { return node.Look(2)->reading.is_running; })) << Read("trainer.err");
  kill(node.Look(2)->worker_pid, SIGTERM);
  AwaitTrainer();
  EXPECT_THAT(Read("trainer.err"),
              HasSubstr(fmt::format("dp_rank 0, pp_rank 2: received signal 15 from "
                                    "process {} of user {}",
                                    getpid(), getuid())));
}

TEST_F(TrainerTest, GpuInUseIsNamed) {
  const virtual_gpu::VirtualNode node = OpenNode("a");
  const auto worker = node.OpenWorker(3);
  ASSERT_TRUE(worker);
  const Outcome outcome = Run("trainer --job job.toml --node a.toml --steps 1");
  ExpectComplaint(outcome, 1, "dp_rank 0, pp_rank 3");
  EXPECT_THAT(outcome.err, HasSubstr("computes on GPU 3"));
}

TEST_F(TrainerTest, BadInputIsNamed) {
  ExpectComplaint(Run("trainer --job job.toml --node a.toml --pipelines 2"), 2,
                  "2 pipelines of 4 pp_ranks need 8 GPUs, but the nodes have 4");
  ExpectComplaint(Run("trainer --job job.toml --node a.toml --agent off --agent off"), 2,
                  "1 --node, but 2 --agent");
  ExpectComplaint(
      Run("trainer --job job.toml --node a.toml --job-directory one --job-directory two"), 2,
      "1 --node, but 2 --job-directory");
  ExpectComplaint(Run("trainer --job job.toml --node a.toml --schedule zb-h1"), 2,
                  "stage 0 backward_input is missing");
  ExpectComplaint(Run("trainer --job job.toml --node a.toml --gpus-per-stage 2"), 2,
                  "gpus_per_stage is 2");
  ExpectComplaint(Run("trainer --job job.toml --node nothing.toml"), 2, "nothing.toml");
  Write("fast.toml", "gpus = 4\nrate = 2.0\n[gpu]\nprofile = \"truth.csv\"\n");
  ExpectComplaint(Run("trainer --job job.toml --node fast.toml"), 2, "rate is 2");
  Write("real.toml", "gpus = 4\n[gpu]\nprofile = \"truth.csv\"\n");
  ExpectComplaint(Run("trainer --job job.toml --node a.toml --node real.toml --pipelines 2"), 2,
                  "a.toml and real.toml have different clocks");
}

TEST_F(TrainerTest, DirectoryWithoutRanksIsNamed) {
  RunWell("plan --job job.toml --no-frontier --per-instruction -o out");
  std::filesystem::create_directory(Directory() / "empty");
  const std::string plan = " --plan out/plans/no-slowdown.json ";
  ExpectComplaint(Run("trace empty -o trace.json"), 2, "empty has no rank log");
  ExpectComplaint(Run("trace nowhere -o trace.json"), 2, "nowhere: cannot read");
  ExpectComplaint(
      Run("verify nowhere --steps 50" + plan), 2,
      "nowhere: cannot read: No such file or directory (name the one that the ranks have");
  ExpectComplaint(Run("verify empty --steps 50 --timeout 0.2" + plan), 1,
                  "4 of 4 ranks have recorded no step for 0.2 s: dp0-pp0-tp0 (no log)");
}

TEST_F(TrainerTest, GiveBackTakesThePlanOutOfForce) {
  Write("run/other", "");
  ExpectComplaint(Run("tune run --give-back"), 2, "run has no assignment");
  Write("run/assignment.json",
        R"({"perseus_assignment": 1, "version": 7, "from_step": 0, "record": true,
                 "plan": "plans/7.json"})");
  EXPECT_EQ(RunJson("tune run --give-back").at("assignment_version"), 8);
  const auto assignment = nlohmann::json::parse(Read("run/assignment.json"));
  EXPECT_EQ(assignment.at("own"), true);
  EXPECT_FALSE(assignment.contains("plan"));
  EXPECT_FALSE(assignment.contains("until_step"));
}

TEST_F(TrainerTest, LogsOfAnEarlierRunDoNotCountAsRanks) {
  RunWell("plan --job job.toml --no-frontier --per-instruction -o out");
  RunWell("trainer --job job.toml --node a.toml --steps 2 --job-directory run");
  const Outcome outcome =
      Run("verify run --steps 50 --timeout 0.2 --plan out/plans/no-slowdown.json");
  ExpectComplaint(outcome, 1, "dp0-pp0-tp0 (its log ends at step 1; process");
  EXPECT_THAT(outcome.err, HasSubstr("which is gone"));
  RunWell("trace run -o trace.json");
  const auto trace = nlohmann::json::parse(Read("trace.json"));
  int slices = 0;
  for (const auto& event : trace.at("traceEvents")) slices += event.at("ph") == "X" ? 1 : 0;
  EXPECT_EQ(slices, 2 * 4 * 8);
}

}  // namespace
}  // namespace perseus
