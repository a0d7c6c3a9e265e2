#include "perseus/cluster/telemetry/job_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace perseus::telemetry {
namespace {

using ::testing::IsEmpty;

// A job with two pipelines of two nodes each. Node "a0" has the first half of pipeline 0. Node "b0"
// has the second half, which ends earlier.
class JobWatchTest : public testing::Test {
 protected:
  JobWatchTest() { watch_.SetNodes({{0, {"a0", "b0"}}, {1, {"a1", "b1"}}}, "a0", 0); }

  std::vector<StragglerChange> Report(const std::string& node, std::int64_t step, double busy_s,
                                      int without_clocks = 0) {
    const protocol::StepReport reported{.step = step,
                                        .dp_rank = node[1] - '0',
                                        .time_s = 3,
                                        .busy_s = busy_s,
                                        .energy_j = 100,
                                        .version = 1,
                                        .ranks = 2,
                                        .without_clocks = without_clocks};
    return watch_.Add(node, reported, 3, Milliseconds(step * 3000));
  }
  void Steps(std::int64_t begin, std::int64_t end, double slowdown_of_1 = 1) {
    for (std::int64_t step = begin; step < end; ++step) {
      Report("a0", step, 2.9);
      Report("b0", step, 2.4);
      Report("a1", step, 2.9 * slowdown_of_1);
      Report("b1", step, 2.4 * slowdown_of_1);
    }
  }

  JobWatch watch_;
};

TEST_F(JobWatchTest, ASilentNodeMakesNoOtherPipelineAStraggler) {
  Steps(0, 30);
  for (std::int64_t step = 30; step < 60; ++step) {
    Report("a0", step, 2.9);
    Report("b0", step, 2.4);
    Report("b1", step, 2.4);  // a1 reports nothing.
  }
  EXPECT_THAT(watch_.Stragglers(), IsEmpty());
}

TEST_F(JobWatchTest, ARepeatedReportCountsOnce) {
  Steps(0, 24);
  Steps(24, 25, 1.4);  // Step 24 is slow.
  Steps(25, 27);
  for (int again = 0; again < 3; ++again) {
    for (std::int64_t step = 21; step < 27; ++step) {
      Report("a1", step, step == 24 ? 4.06 : 2.9);
    }
  }
  EXPECT_THAT(watch_.Stragglers(), IsEmpty());
  const auto summary = nlohmann::json::parse(watch_.Summary());
  EXPECT_DOUBLE_EQ(summary["pipelines"]["1"]["energy_j"], 200) << "the sum of two nodes";
  EXPECT_DOUBLE_EQ(summary["step_s"], 3);
}

// These ranks may run at any clock: at the default clock, or at the last clock of a killed agent.
TEST_F(JobWatchTest, RanksWithoutALeaseMakeNoStraggler) {
  Steps(0, 20);
  for (const double of_lost_clock : {1.3, 0.7}) {
    const std::int64_t begin = watch_.last_step() + 1;
    for (std::int64_t step = begin; step < begin + 20; ++step) {
      Report("a0", step, 2.9);
      Report("b0", step, 2.4);
      Report("a1", step, 2.9 * of_lost_clock, 1);
      Report("b1", step, 2.4 * of_lost_clock);
    }
    EXPECT_THAT(watch_.Stragglers(), IsEmpty()) << of_lost_clock;
  }
  Steps(watch_.last_step() + 1, watch_.last_step() + 11, 1.3);
  EXPECT_EQ(watch_.Stragglers().size(), 1U);
}

// In such steps, `perseus tune` may choose the clocks.
TEST_F(JobWatchTest, StepsWithoutAnAssignmentOfTheServerAreNotJudged) {
  for (std::int64_t step = 0; step < 20; ++step) {
    for (const char* node : {"a0", "b0", "a1", "b1"}) {
      watch_.Add(node,
                 {.step = step, .dp_rank = node[1] - '0', .busy_s = node[1] == '1' ? 4.0 : 2.9}, 3,
                 Milliseconds(step * 3000));
    }
  }
  EXPECT_THAT(watch_.Stragglers(), IsEmpty());
}

TEST_F(JobWatchTest, JudgesARestartedJob) {
  Steps(0, 100);
  watch_.Restart();
  EXPECT_EQ(watch_.last_step(), -1);
  Steps(0, 20, 1.3);
  EXPECT_EQ(watch_.last_step(), 19);
  EXPECT_EQ(watch_.Stragglers().size(), 1U);
}

TEST_F(JobWatchTest, AStepFarBackMeansARestart) {
  Steps(0, 400);
  EXPECT_FALSE(watch_.TakeRestart());
  Steps(0, 3);
  EXPECT_TRUE(watch_.TakeRestart());
  EXPECT_EQ(watch_.last_step(), 2);
}

TEST_F(JobWatchTest, ExpectedTimesEndWithTheLastInstruction) {
  store::PlannedAssignment assignment;
  assignment.pipelines = {{"p-1", 3, 100}, {"p-2", 3.6, 90}};
  assignment.tail_s = 0.6;
  watch_.Learn(4, assignment);
  EXPECT_DOUBLE_EQ(watch_.ExpectedTime(4, 0), 2.4);
  EXPECT_DOUBLE_EQ(watch_.ExpectedTime(4, 1), 3.0);
  EXPECT_EQ(watch_.ExpectedTime(5, 0), 0);
}

// The GPUs of a killed agent keep their last clock. That needs less energy, but takes longer.
TEST_F(JobWatchTest, StepsOfRanksWithoutALeaseSaveNothing) {
  store::PlannedAssignment assignment;
  assignment.pipelines = {{"p-1", 3, 200}, {"p-2", 3, 200}};
  assignment.baseline_energy_j = 250;
  watch_.Learn(1, assignment);
  Steps(0, 3);
  const JudgedEnergy judged = watch_.TakeJudgedEnergy();
  EXPECT_DOUBLE_EQ(judged.baseline_j, 6 * 250);
  EXPECT_DOUBLE_EQ(judged.measured_j, 6 * 200);
  Report("a0", 3, 2.9);
  Report("b0", 3, 2.4, 1);
  EXPECT_EQ(watch_.TakeJudgedEnergy().baseline_j, 0);
}

TEST_F(JobWatchTest, StepsOfRanksWithoutALeaseDoNotSpeakAgainstThePlan) {
  watch_.StartJudging({.pipelines = 2}, {}, 0);
  store::PlannedAssignment assignment;
  assignment.pipelines = {{"p-1", 3, 200}, {"p-2", 3, 200}};
  assignment.time_s = 3;
  watch_.Learn(1, assignment);
  Steps(0, 12);
  EXPECT_EQ(watch_.GuardedSteps().steps, 10) << "without the first and the newest one";
  for (std::int64_t step = 12; step < 20; ++step) {
    for (const char* node : {"a0", "b0", "a1"}) Report(node, step, 3.4);
    Report("b1", step, 3.4, 2);
  }
  EXPECT_EQ(watch_.GuardedSteps().steps, 7) << "the other steps of the last 16, without the first";
}

TEST_F(JobWatchTest, RenewsStragglersThatStillHold) {
  Steps(0, 20);
  Steps(20, 23, 1.3);
  int changes = 0;
  for (std::int64_t step = 23; step < 43; ++step) {
    for (const char* node : {"a0", "b0", "a1", "b1"}) {
      const double busy_s = (node[0] == 'a' ? 2.9 : 2.4) * (node[1] == '1' ? 1.3 : 1);
      changes += static_cast<int>(Report(node, step, busy_s).size());
    }
  }
  EXPECT_GE(changes, 2) << "in 60 s, every 20 s";
  EXPECT_LE(changes, 4);
}

TEST_F(JobWatchTest, DoesNotRenewAStragglerWhoseNodesDoNotAllReport) {
  Steps(0, 20);
  Steps(20, 23, 1.3);
  ASSERT_EQ(watch_.Stragglers().size(), 1U);
  Report("a0", 23, 2.9);
  for (std::int64_t step = 24; step < 64; ++step) {
    for (const char* node : {"a0", "b0", "b1"}) {
      EXPECT_THAT(Report(node, step, 2.4), IsEmpty()) << "a1 does not report";
    }
  }
}

TEST_F(JobWatchTest, JudgesOnlyAfterStartJudging) {
  JobWatch watch;
  EXPECT_EQ(watch.RoleAt(0, false), JobWatch::Role::kStartsToJudge);
  EXPECT_EQ(watch.RoleAt(0, false), JobWatch::Role::kStartsToJudge)
      << "StartJudging was not called";
  EXPECT_FALSE(watch.Judges(0));
  watch.StartJudging({.pipelines = 2, .detects_stragglers = true}, {{1, 1.3}}, 0);
  EXPECT_EQ(watch.RoleAt(0, false), JobWatch::Role::kJudges);
  EXPECT_EQ(watch.settings().pipelines, 2);
  watch.StartJudging({.pipelines = 2, .detects_stragglers = true}, {}, 0);
  EXPECT_EQ(watch.Stragglers().size(), 1U) << "another thread had called it";
}

TEST_F(JobWatchTest, AClockThatWasSetBackDelaysNothing) {
  EXPECT_TRUE(watch_.IsDue(1'000'000, 500));
  EXPECT_FALSE(watch_.IsDue(1'000'400, 500));
  EXPECT_TRUE(watch_.IsDue(900'000, 500));
  EXPECT_FALSE(watch_.IsDue(900'400, 500));
}

TEST_F(JobWatchTest, NewNodesOfALargeJobShareReadsOfTheStore) {
  EXPECT_TRUE(watch_.NeedsNodes("c0", 0)) << "four nodes are read without a pause";
  EXPECT_FALSE(watch_.NeedsNodes("a0", 0));
  std::set<std::string> many;
  for (int i = 0; i < 5000; ++i) many.insert("n" + std::to_string(i));
  watch_.SetNodes({{0, many}}, "n0", 1000);
  EXPECT_FALSE(watch_.NeedsNodes("new", 1499));
  EXPECT_TRUE(watch_.NeedsNodes("new", 1500));
  EXPECT_FALSE(watch_.NeedsNodes("n0", 1500));
}

}  // namespace
}  // namespace perseus::telemetry
