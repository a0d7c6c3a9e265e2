#include "perseus/cluster/store/planned_assignment.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace perseus::store {
namespace {

TEST(PlannedAssignment, IsReadFromItsText) {
  const PlannedAssignment assignment{.from_step = 7,
                                     .target = "no slowdown",
                                     .reason = "profile 1",
                                     .pipelines = {{"p-1", 2.5, 1000.25}, {"p-2", 3, 900}},
                                     .upcoming = {"p-3"},
                                     .time_s = 3,
                                     .baseline_time_s = 2.5,
                                     .baseline_energy_j = 1100};
  const auto again = ParsePlannedAssignment(JsonOf(assignment).dump());
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, assignment);
  EXPECT_EQ(JsonOf(*again).dump(), JsonOf(assignment).dump());
  EXPECT_FALSE(ParsePlannedAssignment("{}"));
}

}  // namespace
}  // namespace perseus::store
