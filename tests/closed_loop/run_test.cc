// `perseus run` with a training of eight processes on virtual GPUs. It starts without any
// measurement, and ends with a verified saving. The training is `perseus trainer`, which opens a
// session by itself.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>

#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "tests/closed_loop/closed_loop_job.h"

namespace perseus {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class RunTest : public ClosedLoopJob {
 protected:
  // Runs the trainer with `perseus run`. The output goes to run.out and run.err.
  void RunTrainer(const std::string& run_flags, int steps) {
    trainer_ =
        Start(fmt::format("run --job-directory run {} -- {} trainer --job job.toml --node "
                          "a.toml --node b.toml --agent a.sock --agent b.sock "
                          "--job-directory run --timeout 300 --json --steps {} "
                          ">run.out 2>run.err",
                          run_flags, PERSEUS_PROGRAM, steps));
    EXPECT_TRUE(Comes([this] { return HasEnded(trainer_); })) << Read("run.err");
    std::cout << Read("run.err");
    for (const std::string log : {"run/tune.log", "run/verify.log", "run/verify.json"}) {
      if (std::filesystem::exists(Directory() / log)) std::cout << Read(log);
    }
  }
  // Returns the result of the verification. Expects that the training saves what its plan promises.
  nlohmann::json TuneAndVerify(int steps = 400,
                               const std::string& flags = "--budget-steps 40 --verify-steps 60",
                               double switch_latency_ms = kQuietA100.switch_latency_ms) {
    RunTrainer(fmt::format("--tune --switch-latency {} --assignment-delay 0.4 {}",
                           switch_latency_ms, flags),
               steps);
    nlohmann::json verified = JsonOf("run/verify.json");
    const double promised = verified.at("promised_saving").get<double>();
    EXPECT_GT(promised, 0);
    EXPECT_NEAR(verified.at("saving").at("estimate").get<double>(), promised, kOnePoint);
    return verified;
  }
  nlohmann::json JsonOf(const std::string& file) const { return nlohmann::json::parse(Read(file)); }
  // Expects that the plan requests no clock that no GPU reaches.
  void ExpectClocksUpTo(int reached_mhz) const {
    const nlohmann::json plan = JsonOf("run/tuned/plan.json");
    int highest_mhz = 0;
    for (const auto& rank : plan.at("pp_ranks")) {
      for (const auto& one : rank.at("instructions")) {
        highest_mhz = std::max(highest_mhz, one.value("frequency", 0));
      }
    }
    EXPECT_GT(highest_mhz, 0);
    EXPECT_LE(highest_mhz, reached_mhz);
  }
  // Expects that promise and measurement agree within half a point, and that the plan is not
  // slower. The limits hold for the nearer end of the interval, because steps scatter.
  static void ExpectHonest(const nlohmann::json& verified) {
    const double promised = verified.at("promised_saving").get<double>();
    EXPECT_LT(verified.at("saving").at("lower").get<double>() - kOnePoint / 2, promised);
    EXPECT_GT(verified.at("saving").at("upper").get<double>() + kOnePoint / 2, promised);
    EXPECT_LT(verified.at("slowdown").at("lower").get<double>(), 0.002);
  }
};

// Enough steps for a job with 1F1B, because its verification ends after about 200 steps.
constexpr int kEnoughSteps = 280;

// Perseus gets no job file. The schedule, the pipelines and the blocking power come from the job.
TEST_F(RunTest, TuneGoesFromNothingToAVerifiedSaving) {
  SetUpNodes("1f1b", 6, "--work-scale 0.4");
  const nlohmann::json verified = TuneAndVerify(kEnoughSteps);
  EXPECT_EQ(JsonOf("run.out").at("steps"), kEnoughSteps);
  const std::string err = Read("run.err");
  EXPECT_THAT(err, AllOf(HasSubstr("\nperseus: plan 1 of 2 saves "),
                         HasSubstr("perseus: 280 steps of 8 ranks, "), HasSubstr(" J in all"),
                         HasSubstr("perseus: the plan promises to save "),
                         HasSubstr("perseus: measured against steps without it: it saves "),
                         HasSubstr("/run/tuned/plan.json, with its profiles beside it")));
  EXPECT_EQ(Read("run/schedule.csv").substr(0, 12), "0F0,0F1,0F2,");
  EXPECT_NEAR(verified.at("saving").at("estimate").get<double>(),
              JsonOf("run/tune.json").at("saving").get<double>(), kOnePoint);
  RunWell("evaluate run/tuned/plan.json");

  // The next run follows the plan from its first step on.
  RunTrainer("", 12);
  EXPECT_THAT(Read("run.err"),
              HasSubstr("\nperseus: 96 of 96 steps of all ranks had a plan, 0 of"));
  EXPECT_TRUE(Comes([this] { return IsAllRestored(); }));
}

// The schedules have two model chunks on each rank: interleaved, and V-shaped with a split
// backward.
TEST_F(RunTest, TuneOfAnInterleavedScheduleSavesWhatItPromises) {
  SetUpNodes("interleaved-1f1b", 8, "--chunks 2 --work-scale 0.8 --imbalance 0.1");
  TuneAndVerify();
  EXPECT_THAT(Read("run.err"), HasSubstr(", 0 of them ran in another order\n"));
}

TEST_F(RunTest, TuneOfAZeroBubbleScheduleSavesWhatItPromises) {
  SetUpNodes("zb-v", 8,
             "--chunks 2 --fold --instructions forward,backward_input,backward_weight "
             "--work-scale 0.8 --imbalance 0.1");
  TuneAndVerify();
  EXPECT_THAT(Read("run.err"), HasSubstr(", 0 of them ran in another order\n"));
}

TEST_F(RunTest, TuneOfH100sAtTheirPowerLimitSavesWhatItPromises) {
  SetUpNodes("1f1b", 6, "", AtPowerLimit(kH100, 420));
  const nlohmann::json verified =
      TuneAndVerify(700, "--budget-steps 80 --verify-steps 100", kH100.switch_latency_ms);
  EXPECT_GT(verified.at("promised_saving"), kOnePoint / 2);
  ExpectHonest(verified);
  // 420 W permit 1290 MHz at most, and the clock wanders by 1.8 %.
  ExpectClocksUpTo(1395);
  EXPECT_THAT(Read("run.err"),
              AllOf(ContainsRegex("at their power limit, GPUs do not reach their highest clock of "
                                  "1980 MHz: forward reaches 1[0-9]+.* MHz, backward reaches "),
                    ContainsRegex("in [0-9]+ of 5600 steps of all ranks, GPUs were at their power "
                                  "limit, with a clock of 1[0-9]+ MHz in the median .their highest "
                                  "clock is 1980 MHz"),
                    Not(HasSubstr("warning"))));
}

TEST_F(RunTest, TuneOfH100sAtAHigherPowerLimitSavesWhatItPromises) {
  SetUpNodes("1f1b", 6, "", AtPowerLimit(kH100, 560));
  const nlohmann::json verified =
      TuneAndVerify(700, "--budget-steps 80 --verify-steps 100", kH100.switch_latency_ms);
  EXPECT_GT(verified.at("promised_saving"), 2 * kOnePoint);
  ExpectHonest(verified);
  ExpectClocksUpTo(1815);  // 560 W permit 1680 MHz at most.
}

TEST_F(RunTest, TuneOfA100sAtTheirPowerLimitSavesMuch) {
  SetUpNodes("1f1b", 6, "--work-scale 0.4", AtPowerLimit(kQuietA100, 420));
  const nlohmann::json verified = TuneAndVerify(kEnoughSteps);
  // With exact measurements, and within six clock changes for each GPU, a plan saves 8.6 %.
  EXPECT_GT(verified.at("promised_saving"), 5 * kOnePoint);
  ExpectHonest(verified);
  EXPECT_NEAR(verified.at("saving").at("estimate"), verified.at("promised_saving"), kOnePoint / 2);
  EXPECT_LT(verified.at("slowdown").at("estimate"), 0.002);
  ExpectClocksUpTo(1290);
  EXPECT_EQ(JsonOf("run/tune.json").at("reached_mhz").at("backward"),
            nlohmann::json::array({1290, 1290}));
}

// One GPU of eight draws 12 % more power. So it reaches 1125 MHz, where the others reach 1185 MHz.
TEST_F(RunTest, TuneWithOneGpuThatReachesLessSavesWhatItPromises) {
  SetUpNodes("1f1b", 6, "--work-scale 0.4", AtPowerLimit(kQuietA100, 350),
             "power_factors = [1, 1, 1.12, 1]\n");
  const nlohmann::json verified = TuneAndVerify(kEnoughSteps);
  EXPECT_GT(verified.at("promised_saving"), 3 * kOnePoint);
  ExpectHonest(verified);
  EXPECT_NEAR(verified.at("saving").at("estimate"), verified.at("promised_saving"), kOnePoint / 2);
  EXPECT_LT(verified.at("slowdown").at("estimate"), 0.002);
  ExpectClocksUpTo(1185);
}

// The messages between the ranks of this job take 4 ms. If a plan ignores this time, it takes 0.3 %
// more time than promised, because messages are a larger part of its critical path. tune measures
// this time. verify then finds no slowdown: the slowdown is less than its default tolerance.
TEST_F(RunTest, TuneMeasuresAndPlansForTheTransferTime) {
  SetUpNodes("1f1b", 6, "--work-scale 0.4");
  Write("job.toml", Read("job.toml") + "[[fixed]]\nkind = \"p2p\"\ntime_s = 0.004\n");
  const nlohmann::json verified = TuneAndVerify(kEnoughSteps);
  EXPECT_NEAR(JsonOf("run/tuned/plan.json").at("job").at("fixed").at("p2p").at("time_s"), 0.004,
              0.0002);
  EXPECT_LT(verified.at("slowdown").at("estimate").get<double>(), 0.002);
}

TEST_F(RunTest, TuneThatEndsEarlySaysHowManyStepsItNeeds) {
  SetUpNodes("1f1b", 6, "--work-scale 0.4");
  RunTrainer("--tune --switch-latency 2 --assignment-delay 0.4", 60);
  EXPECT_EQ(JsonOf("run.out").at("steps"), 60);
  EXPECT_THAT(Read("run.err"),
              ContainsRegex("there is no plan: the training ended too early; at least [0-9]+ more "
                            "steps are needed, and perseus run --tune --job-directory .*/run"));
  EXPECT_TRUE(Comes([this] { return IsAllRestored(); }));
}

// Ctrl-C comes while clocks are lowered to measure them. After it, no clock and no assignment
// remains, and the measurements are kept.
TEST_F(RunTest, InterruptWhileTuneMeasuresRestoresAllClocks) {
  SetUpNodes("1f1b", 6, "--work-scale 0.4");
  trainer_ = Start(fmt::format(
      "run --job-directory run --tune --switch-latency 2 --assignment-delay 0.4 -- {} "
      "trainer --job job.toml --node a.toml --node b.toml --agent a.sock --agent b.sock "
      "--job-directory run --timeout 300 --json --steps 1000000 >run.out 2>run.err",
      PERSEUS_PROGRAM));
  const auto has_clocks = [this] {
    const auto assignment = protocol::ReadAssignment(Directory() / "run");
    return assignment && *assignment && !(*assignment)->clocks.empty();
  };
  ASSERT_TRUE(Comes([&] {
    return has_clocks() && std::filesystem::exists(Directory() / "run/tuner.json");
  })) << Read("run.err");
  // The messages of tune appear at once, not at the end.
  EXPECT_TRUE(
      Comes([this] { return Read("run.err").find("perseus: round 1: ") != std::string::npos; }));
  kill(trainer_, SIGINT);
  ASSERT_TRUE(Comes([this] { return HasEnded(trainer_); })) << Read("run.err");
  EXPECT_TRUE(Comes([this] { return IsAllRestored(); }));
  EXPECT_FALSE(has_clocks());
  EXPECT_THAT(Read("run.err"),
              HasSubstr("perseus: there is no plan: the training ended too early"));
  EXPECT_GT(JsonOf("run/tuner.json").at("spent").at("steps").get<int>(), 0);
}

// The schedule from the logs is the schedule that the trainer ran, and the planner reads it.
TEST_F(RunTest, ScheduleOfTheLogsIsTheOneThatRan) {
  SetUpNodes("zb-v", 8,
             "--chunks 2 --instructions forward,backward_input,backward_weight --work-scale 0.1");
  RunTrainer("", 6);
  EXPECT_THAT(Read("run.err"), Not(HasSubstr("had a plan")));
  EXPECT_THAT(RunWell("schedule run -o order.csv"),
              AllOf(HasSubstr("zb-v: stages 8, pp_ranks 4, microbatches 8, pipelines 2"),
                    HasSubstr("in 6 steps, last in steps 0 to 5"), HasSubstr("wrote order.csv")));
  EXPECT_EQ(RunWell("schedule run"), Read("order.csv"));
  const nlohmann::json by_name =
      RunJson("plan truth.csv --schedule zb-v --microbatches 8 --blocking-power 84 --no-frontier");
  const nlohmann::json by_order =
      RunJson("plan truth.csv --schedule-file order.csv --blocking-power 84 --no-frontier");
  EXPECT_EQ(by_name.at("plans"), by_order.at("plans"));
  std::filesystem::remove(Directory() / "run/ranks/dp0-pp2-tp0.jsonl");
  ExpectComplaint(Run("schedule run"), 2, "run: no steps of dp0-pp2-tp0 are recorded, of 8 ranks");
}

}  // namespace
}  // namespace perseus
