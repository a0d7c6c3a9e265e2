// Tests that plans save as much energy as they promise. A job of eight processes follows a plan,
// and the energy counters of the virtual GPUs show what it saves.
#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "perseus/base/clock.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/runtime/tuner/job_logs.h"
#include "tests/closed_loop/closed_loop_job.h"

namespace perseus {
namespace {

using ::testing::HasSubstr;

class ClosedLoopTest : public ClosedLoopJob {
 protected:
  Promise PlanWithTruth() const {
    RunWell("plan --job job.toml --no-frontier --per-instruction -o out");
    const nlohmann::json plan = nlohmann::json::parse(Read("out/plans/no-slowdown.json"));
    const nlohmann::json& baseline = plan.at("baseline");
    return {1 - plan.at("energy_j").get<double>() / baseline.at("energy_j").get<double>(),
            plan.at("time_s").get<double>(), baseline.at("time_s").get<double>()};
  }
  // Writes an assignment that activates the plan from that step on, before any rank exists.
  void AssignPlan(std::int64_t from_step) const {
    auto writer = protocol::AssignmentWriter::Open(Directory() / "run");
    ASSERT_TRUE(writer) << writer.error().Message();
    protocol::Assignment assignment;
    assignment.plan = *writer->AddPlan("1", Read("out/plans/no-slowdown.json"));
    ASSERT_TRUE(writer->Write(assignment, from_step));
  }
  // Runs a job of 16 steps under an assignment from step 8 on, and expects the promised saving.
  void TrainAndExpectKept(const Promise& promise) {
    StartTrainer("--steps 16");
    AwaitTrainer();
    // Two steps count neither before nor after the plan: the first step, and the step in which all
    // clocks change.
    ExpectPromiseKept(promise, TrueSteps(), {1, 8}, {9, 16});
  }
};

// The coordinator measures how long the instructions take and how much power a waiting GPU draws.
TEST_F(ClosedLoopTest, PlanFromOnlineProfileSavesWhatItPromises) {
  SetUpNodes("1f1b", 6, "--work-scale 0.4");
  StartTrainer("");
  const std::filesystem::path run = Directory() / "run";
  const std::shared_ptr<Clock> clock = OpenNode("a").clock();
  constexpr Nanoseconds kTimeout = 30'000'000'000;
  std::optional<tuner::JobLogs> logs;
  const auto await_step = [&](std::int64_t step) {
    const auto reached = logs->AwaitStep(
        logs->Alive(), step, kTimeout, [] { return false; }, *clock);
    ASSERT_TRUE(reached) << reached.error().Message();
  };
  ASSERT_TRUE(Comes([&] { return std::filesystem::exists(run / "ranks"); }));
  logs = *tuner::JobLogs::Open(run, tuner::JobLogs::Job::kIsRunning);
  const auto ranks = logs->AwaitRanks(
      tuner::RanksOf(2, 4, 1), kTimeout, [] { return false; }, *clock);
  ASSERT_TRUE(ranks) << ranks.error().Message() << Read("trainer.err");
  await_step(8);

  const nlohmann::json tuned = RunJson(
      "tune run --job job.toml --blocking-power 0 --budget-steps 60 --frequencies 6 "
      "--steps-per-round 9 "
      "--assignment-delay 0.4 -o tuned 2>tune.err");
  std::cout << tuned.dump(2) << '\n' << Read("tune.err");
  const auto version = tuned.at("assignment_version").get<std::int64_t>();
  ASSERT_GT(version, 0) << Read("tune.err");
  EXPECT_LE(tuned.at("frequencies"), 6);
  // The files of the virtual nodes have a blocking power of 84 W.
  EXPECT_NEAR(tuned.at("blocking_power_w").get<double>(), 84, 84 * 0.1);
  // The virtual GPUs have 0.2 % of independent noise, and the profiles contain it.
  EXPECT_NEAR(tuned.at("noise").at("independent").get<double>(), 0.002, 0.0006);
  EXPECT_LE(tuned["noise"].at("common").get<double>(), 0.0005);
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
  // The measured profile is a valid input of `perseus plan`. A warning may say that some
  // instruction was measured at too few clocks to have a choice.
  const Outcome planned = Run(
      "plan tuned/profile.csv --schedule 1f1b --microbatches 6 --blocking-power 84 --no-frontier");
  EXPECT_EQ(planned.status, 0) << planned.err;
  RunWell("evaluate tuned/plan.json");
}

TEST_F(ClosedLoopTest, InterleavedPlanSavesWhatItPromises) {
  SetUpNodes("interleaved-1f1b", 8, "--chunks 2 --work-scale 0.35");
  const Promise promise = PlanWithTruth();
  AssignPlan(8);
  TrainAndExpectKept(promise);
}

TEST_F(ClosedLoopTest, ZeroBubblePlanSavesWhatItPromises) {
  SetUpNodes("zb-h1", 6, "--instructions forward,backward_input,backward_weight --work-scale 0.5");
  const Promise promise = PlanWithTruth();
  AssignPlan(8);
  TrainAndExpectKept(promise);
}

// The schedule has one more microbatch in flight. At the highest clock, its instructions take the
// same time as with 1F1B. So the steps before the plan are the reference of the search.
TEST_F(ClosedLoopTest, SearchedScheduleSavesWhatItPromises) {
  SetUpNodes("1f1b", 6, "--work-scale 0.5");
  const Promise fixed = PlanWithTruth();
  const auto search = RunJson("schedule search --job job.toml --more 0,1 --json -o schedules");
  std::string job = Read("job.toml");
  const std::string schedule = "schedule = \"1f1b\"";
  job.replace(job.find(schedule), schedule.size(), "schedule_file = \"schedules/more-1.csv\"");
  Write("job.toml", job);
  const Promise promise = PlanWithTruth();
  EXPECT_EQ(promise.baseline_time_s, search.at("reference").at("time_s").get<double>());
  EXPECT_GE(promise.saving, fixed.saving + 0.02);
  AssignPlan(8);
  TrainAndExpectKept(promise);
}

// A job keeps its schedule, so the two schedules run one after the other.
TEST_F(ClosedLoopTest, VerifyComparesTheRunsOfTwoSchedules) {
  SetUpNodes("1f1b", 6, "--work-scale 0.5");
  const auto train = [this](const std::string& name) {
    const Promise promise = PlanWithTruth();
    AssignPlan(0);
    StartTrainer("--steps 48");
    AwaitTrainer();
    std::filesystem::rename(Directory() / "run", Directory() / name);
    return promise;
  };
  const Promise fixed = train("run-1f1b");
  RunWell("schedule search --job job.toml --more 1 -o schedules");
  std::string job = Read("job.toml");
  const std::string schedule = "schedule = \"1f1b\"";
  job.replace(job.find(schedule), schedule.size(), "schedule_file = \"schedules/more-1.csv\"");
  Write("job.toml", job);
  const Promise more = train("run-more-1");
  const auto compared = RunJson("verify run-more-1 --against run-1f1b --steps 40");
  const double promised = 1 - (1 - more.saving) / (1 - fixed.saving);
  EXPECT_GT(promised, 0.03);
  // The tolerance is a tenth of the promise.
  EXPECT_NEAR(compared.at("saving").at("estimate").get<double>(), promised, promised / 10);
  EXPECT_GT(compared.at("saving").at("lower").get<double>(), 0.02);
  EXPECT_EQ(compared.at("slows"), "same");
}

TEST_F(ClosedLoopTest, KilledRankLeavesNoClockLocked) {
  SetUpNodes("1f1b", 6, "--work-scale 0.5");
  PlanWithTruth();
  AssignPlan(0);
  StartTrainer("");
  const virtual_gpu::VirtualNode node = OpenNode("b");
  const auto is_planned = [&] {
    const auto view = node.Look(2);
    return view && view->worker_pid != 0 && view->reading.lock.has_value();
  };
  ASSERT_TRUE(Comes(is_planned)) << Read("trainer.err");
  kill(node.Look(2)->worker_pid, SIGKILL);
  AwaitTrainer();
  EXPECT_THAT(Read("trainer.err"), HasSubstr("dp_rank 1, pp_rank 2"));
  EXPECT_THAT(Read("trainer.err"), HasSubstr("was killed by signal 9"));
  EXPECT_TRUE(Comes([this] { return IsAllRestored(); }));
}

}  // namespace
}  // namespace perseus
