#include "perseus/runtime/tuner/step_costs.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

#include "perseus/runtime/protocol/job_directory/rank_log.h"
#include "tests/support/results.h"
#include "tests/support/temporary_directory.h"

namespace perseus::tuner {
namespace {

using ::testing::HasSubstr;

TEST(SeenStepsTest, PlanSlowerThanPromisedIsAnErrorWithBothTimes) {
  SeenSteps seen{.time_s = 1.035, .energy_j = 90, .baseline_time_s = 1, .baseline_energy_j = 100};
  // The tolerance is 1 % plus three standard errors.
  EXPECT_TRUE(CheckSeen(seen, 0.03));
  EXPECT_THAT(CheckSeen(seen, 0.02),
              FailsAs(ErrorKind::kUnreachable,
                      ::testing::AllOf(HasSubstr("1.0350 s with the plan and 1.0000 s"),
                                       HasSubstr("3.50 % more, but the plan promised 2.00 %"))));
  seen.time_error_s = 0.002;
  EXPECT_TRUE(CheckSeen(seen, 0.02));
}

TEST(SeenStepsTest, PlanThatUsesMoreEnergyThanTheBaselineIsAnError) {
  SeenSteps seen{.time_s = 1, .energy_j = 100.9, .baseline_time_s = 1, .baseline_energy_j = 100};
  EXPECT_TRUE(CheckSeen(seen, 0));
  seen.energy_j = 101.1;
  EXPECT_THAT(CheckSeen(seen, 0), FailsWith(HasSubstr("101.1 J with the plan and 100.0 J")));
}

TEST(SeenStepsTest, RangeOfAPromiseHasThePromiseAndTheIntervalOfWholeSteps) {
  SeenSteps seen{.time_s = 1.02, .energy_j = 90, .baseline_time_s = 1, .baseline_energy_j = 100};
  // The errors are unknown.
  EXPECT_DOUBLE_EQ(RangeOfSaving(0.12, seen).lower, 0.1);
  EXPECT_DOUBLE_EQ(RangeOfSaving(0.12, seen).upper, 0.12);
  seen.saving_error = seen.time_error_s = 0.01;
  seen.degrees_of_freedom = 22;  // Student's t: 2.074 standard errors.
  EXPECT_DOUBLE_EQ(RangeOfSaving(0.12, seen).estimate, 0.12);
  EXPECT_NEAR(RangeOfSaving(0.12, seen).lower, 0.1 - 0.02074, 1e-4);
  EXPECT_NEAR(RangeOfSaving(0.12, seen).upper, 0.1 + 0.02074, 1e-4);
  EXPECT_NEAR(RangeOfSlowdown(0, seen).lower, -0.00074, 1e-4);
  EXPECT_NEAR(RangeOfSlowdown(0, seen).upper, 0.04074, 1e-4);
}

TEST(SeenStepsTest, SlowerPlanIsBlamedOnOverlappingSteps) {
  const SeenSteps seen{.time_s = 1.035,
                       .energy_j = 90,
                       .baseline_time_s = 1,
                       .baseline_energy_j = 100,
                       .overlap_s = 0.04};
  EXPECT_THAT(CheckSeen(seen, 0).error().Message(),
              HasSubstr("ranks begin a step before others have ended the last one"));
}

constexpr Nanoseconds kStepSecond = 1'000'000'000;

// Two ranks with steps of 2 s. Each rank computes in a part of the step.
class UsualCostTest : public testing::Test {
 protected:
  UsualCostTest() { std::filesystem::create_directory(directory_ / "ranks"); }

  // The clock of the rank's host began `epoch` after 1970. `joules[i]` is the energy of step i.
  void Log(const protocol::RankId& name, Nanoseconds epoch, Nanoseconds offset,
           std::initializer_list<double> joules) const {
    std::ofstream log(protocol::RankLogPath(directory_, name));
    protocol::RankHeader header;
    header.name = name;
    header.epoch = epoch;
    log << protocol::FormatRecord(header);
    double counter = 1000;
    std::int64_t number = 0;
    for (const double joule : joules) {
      protocol::RanStep step;
      step.step = number;
      step.on_plan = true;
      step.begin = (10 + 2 * number) * kStepSecond + offset - epoch;
      step.end = step.begin + 5 * kStepSecond;  // Only the end of the last instruction counts.
      step.instructions = {{.begin = 0, .duration = kStepSecond},
                           {.begin = kStepSecond, .duration = kStepSecond}};
      step.energy = {{0, 0, counter}};
      counter += joule;
      ++number;
      log << protocol::FormatRecord(step);
    }
  }
  UsualCost Cost(const std::set<protocol::RankId>& ranks, std::int64_t steps) {
    auto logs = JobLogs::Open(directory_.path(), JobLogs::Job::kIsOver);
    EXPECT_TRUE(logs) << logs.error().Message();
    const auto read = logs->ReadNew();
    EXPECT_TRUE(read) << read.error().Message();
    const auto cost = UsualCostOfSteps(*logs, ranks, {0, steps, 0});
    EXPECT_TRUE(cost) << cost.error().Message();
    return cost.value_or(UsualCost{});
  }

  TemporaryDirectory directory_;
};

TEST_F(UsualCostTest, ErrorOfTheEnergyIsThatOfTheMean) {
  Log({0, 0, 0}, 0, 0, {100, 110, 90, 100, 0});
  const UsualCost cost = Cost({{0, 0, 0}}, 4);
  EXPECT_NEAR(cost.energy_j, 100, 1e-6);
  EXPECT_NEAR(cost.energy_error_j, std::sqrt(200.0 / 3 / 4), 1e-6);
  EXPECT_EQ(cost.steps, 4);
  EXPECT_EQ(cost.overlap_s, 0);
}

// Rank 1 begins 0.5 s after rank 0. It ends at 2.5 s, and rank 0 begins the next step at 2 s.
TEST_F(UsualCostTest, OverlapIsThatOfRanksOfOnePipelineOnDifferentHosts) {
  Log({0, 0, 0}, 7 * kStepSecond, 0, {100, 100, 100});
  Log({0, 1, 0}, 3 * kStepSecond, kStepSecond / 2, {100, 100, 100});
  Log({1, 0, 0}, 0, kStepSecond / 2, {100, 100, 100});
  EXPECT_NEAR(Cost({{0, 0, 0}, {0, 1, 0}}, 2).overlap_s, 0.5, 1e-9);
  EXPECT_EQ(Cost({{0, 0, 0}, {1, 0, 0}}, 2).overlap_s, 0);
}

}  // namespace
}  // namespace perseus::tuner
