// The bound at examples computed by hand. few_switches_test.cc compares it with exhaustive search.
#include "perseus/planning/few_switches/switch_bound.h"

#include <gtest/gtest.h>

#include <utility>

#include "perseus/planning/few_switches/few_switches.h"
#include "tests/support/planning_jobs.h"

namespace perseus::few_switches {
namespace {

// 1000 MHz: 10 ms, 2 J. 500 MHz: 20 ms, 1 J.
schedule::OptionSet FastAndSlow() {
  schedule::OptionSet set;
  set.options = {{1000, {}, 10 * kMillisecond, 2, 1}, {500, {}, 20 * kMillisecond, 1, 1}};
  return set;
}

//   pp_rank 0   .[X slow 20 ms]        .[Y fast 10 ms]
//   pp_rank 1   [    Z 30 ms          ]
//
// X runs slowly while pp_rank 0 waits for Z. Each change of the clock of pp_rank 0 takes 1 ms,
// which delays the iteration only at Y. With a latency, a change may take effect one instruction
// after its request. So in the bound, the change to Y may cost as little as the change to X. But
// the change to X must not become more expensive.
TEST(SwitchBound, AChangeCostsNoMoreThanItsOwnStallUnderALatency) {
  schedule::OptionSet fixed;
  fixed.kind = InstructionKind::kAllReduce;
  fixed.options = {{0, {}, 30 * kMillisecond, 0, 1}};
  schedule::InstructionGraph graph;
  graph.option_sets = {FastAndSlow(), std::move(fixed)};
  graph.instructions = {{0, 0, 0}, {1, 1, 0}, {0, 0, 0}};
  graph.dependencies = {{0, 2, 0}, {1, 2, 0}};
  graph.pp_rank_orders = {{0, 2}, {1}};
  graph.pp_rank_names = {"pp_rank 0", "pp_rank 1"};
  const plan::Planner planner =
      MakePlanner(std::move(graph), {.blocking_power_w = 0,
                                     .switch_latency = 2 * kMillisecond,
                                     .switch_cost = {.stall = kMillisecond, .energy_j = 0}});
  const Nanoseconds deadline = 41 * kMillisecond;
  const plan::Evaluation best =
      plan::Evaluator(planner.graph(), planner.model()).Evaluate(std::vector{1, 0, 0});
  EXPECT_EQ(best.time, deadline);
  EXPECT_DOUBLE_EQ(best.energy_j, 3);

  const int two = 2;
  const auto bounds = BoundFewSwitches(planner, deadline, std::span(&two, 1));
  ASSERT_TRUE(bounds) << bounds.error().Message();
  ASSERT_TRUE(bounds->front().best.exists);
  const double bound_j = ToJoules(bounds->front().best.bound);
  EXPECT_LE(bound_j, best.energy_j);
  EXPECT_GT(bound_j, 2);  // The energy if both run slowly, which takes too long.
}

}  // namespace
}  // namespace perseus::few_switches
