// What a coordinator leaves behind when it does not come to its end. (What it does when it does is
// tests/closed_loop's.)
#include "perseus/tuner/tuning.h"

#include <gmock/gmock.h>

#include "perseus/jobdir/orders_desk.h"
#include "simulated_job.h"

namespace perseus {
namespace {

using ::testing::HasSubstr;

class TuningTest : public testing::Test {
 protected:
  TuningTest() : job_({{0, 0, 0}, {0, 1, 0}}) {
    options_.job_directory = job_.directory();
    ScheduleSpec spec;
    spec.name = "1f1b";
    spec.ranks = 2;
    spec.microbatches = 4;
    options_.job.schedule = *GenerateSchedule(spec);
    options_.patience = 1'000'000'000;
    options_.should_end = [this] {
      job_.RunStep();
      return false;
    };
  }
  Orders InForce() const { return **ReadOrders(job_.directory()); }

  SimulatedJob job_;
  TuningOptions options_;
  FakeClock clock_;
};

TEST_F(TuningTest, OrdersOfACoordinatorThatWasKilledAreTakenBackByTheNext) {
  Orders before;
  before.plan = "plans/1.json";
  ASSERT_TRUE(WriteOrders(job_.directory(), before));
  {
    auto killed = OrdersDesk::Open(job_.directory());
    ASSERT_TRUE(killed);
    Orders sweep;
    sweep.clocks = {{0, 0, InstructionKind::kForward, 800}};
    sweep.until_step = 20;
    ASSERT_TRUE(killed->Give(sweep, 10));
  }
  options_.job.pipelines = 2;  // Which do not come.
  ASSERT_FALSE(Tune(options_, clock_));
  EXPECT_EQ(InForce().plan, "plans/1.json");
  EXPECT_FALSE(InForce().until_step);
}

// No instruction is in the logs of this job, so no window of the counter says what one costs.
TEST_F(TuningTest, MissingEnergyIsToldAfterOneRound) {
  job_.counter_period_s = 1e6;
  const auto tuned = Tune(options_, clock_);
  ASSERT_FALSE(tuned);
  EXPECT_THAT(tuned.error().message, HasSubstr("rank p0-r0-t0 recorded no energy"));
  EXPECT_THAT(tuned.error().message, HasSubstr("did not move twice"));
  EXPECT_LT(job_.steps(), 30);
  EXPECT_TRUE(InForce().own);
}

TEST(SeenStepsTest, PlanThatIsSlowerThanItPromisedIsToldWithBothFigures) {
  SeenSteps seen{.time_s = 1.035, .energy_j = 90, .baseline_time_s = 1, .baseline_energy_j = 100};
  // 1 % is tolerated, and three standard errors.
  EXPECT_TRUE(CheckSeen(seen, 0.03));
  const auto checked = CheckSeen(seen, 0.02);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().kind, ErrorKind::kUnreachable);
  EXPECT_THAT(checked.error().message, HasSubstr("1.0350 s a step, and 1.0000 s"));
  EXPECT_THAT(checked.error().message, HasSubstr("3.50 % more, where it promised 2.00 %"));
  seen.time_error_s = 0.002;
  EXPECT_TRUE(CheckSeen(seen, 0.02));
}

TEST(SeenStepsTest, PlanThatCostsMoreThanTheBaselineIsTold) {
  SeenSteps seen{.time_s = 1, .energy_j = 100.9, .baseline_time_s = 1, .baseline_energy_j = 100};
  EXPECT_TRUE(CheckSeen(seen, 0));
  seen.energy_j = 101.1;
  const auto checked = CheckSeen(seen, 0);
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message, HasSubstr("101.1 J a step, and 100.0 J"));
}

}  // namespace
}  // namespace perseus
