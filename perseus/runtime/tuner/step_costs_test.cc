#include "perseus/runtime/tuner/step_costs.h"

#include <gmock/gmock.h>

namespace perseus::tuner {
namespace {

using ::testing::HasSubstr;

TEST(SeenStepsTest, PlanSlowerThanPromisedIsAnErrorWithBothTimes) {
  SeenSteps seen{.time_s = 1.035, .energy_j = 90, .baseline_time_s = 1, .baseline_energy_j = 100};
  // The tolerance is 1 % plus three standard errors.
  EXPECT_TRUE(CheckSeen(seen, 0.03));
  const auto checked = CheckSeen(seen, 0.02);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().kind, ErrorKind::kUnreachable);
  EXPECT_THAT(checked.error().message, HasSubstr("1.0350 s with the plan and 1.0000 s"));
  EXPECT_THAT(checked.error().message, HasSubstr("3.50 % more, but the plan promised 2.00 %"));
  seen.time_error_s = 0.002;
  EXPECT_TRUE(CheckSeen(seen, 0.02));
}

TEST(SeenStepsTest, PlanThatUsesMoreEnergyThanTheBaselineIsAnError) {
  SeenSteps seen{.time_s = 1, .energy_j = 100.9, .baseline_time_s = 1, .baseline_energy_j = 100};
  EXPECT_TRUE(CheckSeen(seen, 0));
  seen.energy_j = 101.1;
  const auto checked = CheckSeen(seen, 0);
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message, HasSubstr("101.1 J with the plan and 100.0 J"));
}

}  // namespace
}  // namespace perseus::tuner
