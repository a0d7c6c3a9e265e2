// What was promised is what is measured: plans in force in a job of eight processes, judged by the
// virtual GPUs' own energy counters.
#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "perseus/base/clock.h"
#include "perseus/runtime/protocol/assignment_writer.h"
#include "perseus/runtime/tuner/job_logs.h"
#include "tests/closed_loop/closed_loop_job.h"

namespace perseus {
namespace {

using ::testing::HasSubstr;

class ClosedLoopTest : public ClosedLoopJob {
 protected:
  Promise PlanWithTruth() const {
    RunWell("plan --job job.toml --no-frontier -o out");
    const nlohmann::json plan = nlohmann::json::parse(Read("out/plans/no-slowdown.json"));
    const nlohmann::json& baseline = plan.at("baseline");
    return {1 - plan.at("energy_j").get<double>() / baseline.at("energy_j").get<double>(),
            plan.at("time_s").get<double>(), baseline.at("time_s").get<double>()};
  }
  // Assignment that put the plan into force at that step, before there are ranks.
  void OrderPlan(std::int64_t from_step) const {
    auto writer = protocol::AssignmentWriter::Open(Directory() / "run");
    ASSERT_TRUE(writer) << writer.error().message;
    protocol::Assignment assignment;
    assignment.plan = *writer->AddPlan("1", Read("out/plans/no-slowdown.json"));
    ASSERT_TRUE(writer->Write(assignment, from_step));
  }
  // That a job of 16 steps saves what was promised, under an assignment from step 8 on.
  void TrainAndExpectKept(const Promise& promise) {
    StartTrainer("--steps 16");
    AwaitTrainer();
    // The first of all, and that in which all clocks change, are neither.
    ExpectPromiseKept(promise, TrueSteps(), {1, 8}, {9, 16});
  }
};

// Nobody tells it what the instructions take, nor what waiting costs.
TEST_F(ClosedLoopTest, ProfiledOnlineThePlanSavesWhatItPromised) {
  SetUpNodes("1f1b", 6, "--work-scale 0.4");
  StartTrainer("");
  const std::filesystem::path run = Directory() / "run";
  const std::shared_ptr<Clock> clock = OpenNode("a").clock();
  constexpr Nanoseconds kTimeout = 30'000'000'000;
  std::optional<tuner::JobLogs> logs;
  const auto await_step = [&](std::int64_t step) {
    const auto came = logs->AwaitStep(
        logs->Alive(), step, kTimeout, [] { return false; }, *clock);
    ASSERT_TRUE(came) << came.error().message;
  };
  ASSERT_TRUE(Comes([&] { return std::filesystem::exists(run / "ranks"); }));
  logs = *tuner::JobLogs::Open(run, tuner::JobLogs::Job::kIsRunning);
  const auto ranks = logs->AwaitRanks(
      tuner::RanksOf(2, 4, 1), kTimeout, [] { return false; }, *clock);
  ASSERT_TRUE(ranks) << ranks.error().message << Read("trainer.err");
  await_step(8);

  const nlohmann::json tuned = RunJson(
      "tune run --job job.toml --blocking-power 0 --budget-steps 60 --frequencies 6 "
      "--steps-per-round 9 "
      "--assignment-delay 0.4 -o tuned 2>tune.err");
  std::cout << tuned.dump(2) << '\n' << Read("tune.err");
  const auto version = tuned.at("assignment_version").get<std::int64_t>();
  ASSERT_GT(version, 0) << Read("tune.err");
  EXPECT_LE(tuned.at("frequencies"), 6);
  // What the virtual nodes' files say.
  EXPECT_NEAR(tuned.at("blocking_power_w").get<double>(), 84, 84 * 0.1);
  ASSERT_TRUE(logs->ReadNew());
  await_step(logs->LastStep(logs->Alive()) + 8);
  EndTrainer();

  ASSERT_TRUE(logs->ReadNew());
  Steps before{1, 0};
  Steps after;
  bool is_before = true;
  for (const protocol::RanStep& step : logs->ranks().at({0, 0, 0}).steps) {
    const auto number = static_cast<std::size_t>(step.step);
    is_before = is_before && step.assignment_version == 0;
    if (is_before) before.end = number + 1;
    if (step.assignment_version == version && after.begin == 0) after.begin = number + 1;
    if (step.assignment_version == version) after.end = number + 1;
  }
  ASSERT_GE(before.end, 8U);
  ASSERT_GE(after.end, after.begin + 8);
  ExpectPromiseKept({tuned.at("saving").get<double>(), tuned.at("time_s").get<double>(),
                     tuned.at("baseline_time_s").get<double>()},
                    TrueSteps(), before, after);
  // What was measured can be planned with.
  RunWell(
      "plan tuned/profile.csv --schedule 1f1b --microbatches 6 --blocking-power 84 --no-frontier");
  RunWell("evaluate tuned/plan.json");
}

TEST_F(ClosedLoopTest, InterleavedPlanSavesWhatItPromised) {
  SetUpNodes("interleaved-1f1b", 8, "--chunks 2 --work-scale 0.35");
  const Promise promise = PlanWithTruth();
  OrderPlan(8);
  TrainAndExpectKept(promise);
}

TEST_F(ClosedLoopTest, ZeroBubblePlanSavesWhatItPromised) {
  SetUpNodes("zb-h1", 6, "--instructions forward,backward_input,backward_weight --work-scale 0.5");
  const Promise promise = PlanWithTruth();
  OrderPlan(8);
  TrainAndExpectKept(promise);
}

TEST_F(ClosedLoopTest, RankThatIsKilledLeavesNoClockSet) {
  SetUpNodes("1f1b", 6, "--work-scale 0.5");
  PlanWithTruth();
  OrderPlan(0);
  StartTrainer("");
  const virtual_gpu::VirtualNode node = OpenNode("b");
  const auto is_planned = [&] {
    const auto view = node.Look(2);
    return view && view->worker_pid != 0 && view->reading.lock.has_value();
  };
  ASSERT_TRUE(Comes(is_planned)) << Read("trainer.err");
  kill(node.Look(2)->worker_pid, SIGKILL);
  AwaitTrainer();
  EXPECT_THAT(Read("trainer.err"), HasSubstr("rank 2 of pipeline 1"));
  EXPECT_THAT(Read("trainer.err"), HasSubstr("was killed by signal 9"));
  EXPECT_TRUE(Comes([this] { return IsAllRestored(); }));
}

}  // namespace
}  // namespace perseus
