#include "perseus/planning/api/plan_iteration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "perseus/base/file.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "tests/support/temporary_directory.h"

namespace perseus {
namespace {

using ::testing::HasSubstr;

class PlanIterationTest : public ::testing::Test {
 protected:
  PlanIterationTest() {
    // Forward and backward of two stages, each at two clocks.
    std::ofstream(spec_.profile) << "stage,instruction,frequency,time,energy\n"
                                    "0,forward,1410,0.010,4.0\n"
                                    "0,forward,1200,0.011,3.5\n"
                                    "0,backward,1410,0.020,8.0\n"
                                    "0,backward,1200,0.022,7.0\n"
                                    "1,forward,1410,0.012,4.8\n"
                                    "1,forward,1200,0.0132,4.2\n"
                                    "1,backward,1410,0.024,9.6\n"
                                    "1,backward,1200,0.0264,8.4\n";
  }

  TemporaryDirectory directory_;
  job::JobSettings spec_{.profile = directory_ / "profile.csv",
                         .schedule = "1f1b",
                         .microbatches = 8,
                         .blocking_power_w = 80};
};

TEST_F(PlanIterationTest, PlansWithNoSlowdown) {
  const auto plan = PlanIteration(spec_, NoSlowdown());
  ASSERT_TRUE(plan) << plan.error().Message();
  EXPECT_LE(plan->time_s, plan->baseline_time_s);
  EXPECT_EQ(plan->deadline_s, plan->baseline_time_s);
  EXPECT_GT(plan->saving(), 0);
  EXPECT_LE(plan->lower_bound_j, plan->energy_j * (1 + 1e-12));  // Sums of doubles are rounded.
  EXPECT_GE(plan->gap(), 0);
  EXPECT_EQ(plan->instructions.pp_ranks.size(), 2U);
}

// With one more microbatch in flight on stage 0, its slack is spread over the whole iteration.
TEST_F(PlanIterationTest, FindsTheScheduleWithinTheMicrobatchesInFlight) {
  const auto fixed = PlanIteration(spec_, NoSlowdown());
  spec_.schedule = "auto";
  const auto same = PlanIteration(spec_, NoSlowdown());
  spec_.max_in_flight = {3, 1};
  const auto more = PlanIteration(spec_, NoSlowdown());
  ASSERT_TRUE(fixed && same && more) << more.error().Message();
  EXPECT_LE(same->energy_j, fixed->energy_j);
  EXPECT_LE(more->energy_j, same->energy_j);
  EXPECT_LE(more->time_s, fixed->baseline_time_s);
  EXPECT_EQ(more->instructions.job.schedule.name, "auto");
  spec_.max_in_flight = {3, 2, 1};
  EXPECT_FALSE(PlanIteration(spec_, NoSlowdown()));
}

TEST_F(PlanIterationTest, UsesTheTimeThatTheTargetAllows) {
  const auto fast = PlanIteration(spec_, NoSlowdown());
  const auto slow = PlanIteration(spec_, Slowdown(5));
  ASSERT_TRUE(fast && slow);
  EXPECT_LE(slow->time_s, 1.05 * fast->baseline_time_s);
  EXPECT_LT(slow->energy_j, fast->energy_j);
  const auto same = PlanIteration(spec_, Deadline(slow->deadline_s));
  ASSERT_TRUE(same) << same.error().Message();
  EXPECT_EQ(same->energy_j, slow->energy_j);
}

TEST_F(PlanIterationTest, CountsAllGpusOfAStage) {
  const auto one = PlanIteration(spec_, NoSlowdown());
  spec_.gpus_per_stage = 8;
  const auto eight = PlanIteration(spec_, NoSlowdown());
  ASSERT_TRUE(one && eight);
  EXPECT_DOUBLE_EQ(eight->baseline_energy_j, 8 * one->baseline_energy_j);
}

TEST_F(PlanIterationTest, SavesAPlanThatCanBeReadAgain) {
  const auto plan = PlanIteration(spec_, NoSlowdown());
  ASSERT_TRUE(plan);
  const std::string path = directory_ / "plan.json";
  ASSERT_TRUE(plan->Save(path));
  const auto text = ReadFile(path);
  ASSERT_TRUE(text);
  const auto read = plan_file::ParsePlan(*text, path);
  ASSERT_TRUE(read) << read.error().Message();
  EXPECT_EQ(read->energy_j, plan->energy_j);
}

TEST_F(PlanIterationTest, ErrorsNameTheWrongValue) {
  const auto error = [](const Result<IterationPlan>& plan) {
    return plan ? Error{"planned", ErrorKind::kInput} : plan.error();
  };
  EXPECT_EQ(error(PlanIteration(spec_, Deadline(0.01))).kind, ErrorKind::kUnreachable);
  EXPECT_THAT(error(PlanIteration(spec_, Slowdown(-1))).Message(), HasSubstr("-1"));
  EXPECT_EQ(
      error(PlanIteration(spec_, plan::Target{.kind = plan::Target::Kind::kPowerCap, .value = 1}))
          .kind,
      ErrorKind::kUnreachable);
  spec_.blocking_power_w = -1;
  EXPECT_THAT(error(PlanIteration(spec_, NoSlowdown())).Message(),
              HasSubstr("blocking_power_w is -1"));
  spec_.blocking_power_w.reset();
  EXPECT_THAT(error(PlanIteration(spec_, NoSlowdown())).Message(), HasSubstr("blocking_power_w"));
  spec_.blocking_power_w = 80;
  spec_.microbatches = 0;
  EXPECT_THAT(error(PlanIteration(spec_, NoSlowdown())).Message(), HasSubstr("microbatches"));
  spec_.microbatches = 8;
  spec_.schedule = "1f2b";
  EXPECT_EQ(error(PlanIteration(spec_, NoSlowdown())).kind, ErrorKind::kInput);
  spec_.profile = directory_ / "absent.csv";
  EXPECT_EQ(error(PlanIteration(spec_, NoSlowdown())).kind, ErrorKind::kFile);
}

}  // namespace
}  // namespace perseus
