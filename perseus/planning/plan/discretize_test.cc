// Tests of Discretize: it is deterministic, and more effort gives better plans.
#include "perseus/planning/plan/discretize.h"

#include <gtest/gtest.h>

#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/rounding.h"
#include "tests/support/planning_jobs.h"

namespace perseus::plan {
namespace {

class DiscretizeTest : public ::testing::Test {
 protected:
  frontier::Solution Solve(int tenths_percent) const {
    const Nanoseconds time = planner_.baseline().time;
    return *frontier::SolveDeadline(planner_.network(), time + time / 1000 * tenths_percent);
  }
  double Energy(const Choices& choices) const { return graph_.EffectiveEnergy(choices); }

  const Planner planner_ = *Planner::Create(MakeSyntheticJob({}), {kSyntheticBlockingPowerW, 0});
  const ChoiceGraph graph_{planner_.graph(), kSyntheticBlockingPowerW};
};

TEST_F(DiscretizeTest, MoreEffortGivesBetterPlans) {
  for (const int slowdown : {0, 13, 100}) {
    const frontier::Solution solution = Solve(slowdown);
    const Windows windows = WindowsOf(planner_.network(), solution);
    const Choices rounded = DiffuseRounding(graph_, windows, TimeDirection::kForward);
    const auto quick = Discretize(graph_, planner_.network(), solution, {SearchEffort::kFirstLook});
    const auto full = Discretize(graph_, planner_.network(), solution, {SearchEffort::kFull});
    ASSERT_TRUE(quick);
    ASSERT_TRUE(full);
    EXPECT_LE(Energy(*quick), Energy(rounded));
    EXPECT_LE(Energy(*full), Energy(*quick));
    for (const Choices& choices : {*quick, *full}) {
      const std::vector<Nanoseconds> starts = EarliestStarts(graph_, choices);
      for (int i = 0; i < graph_.instructions(); ++i) {
        const auto at = static_cast<std::size_t>(i);
        const auto choice = static_cast<std::size_t>(choices[at]);
        EXPECT_LE(starts[at] + graph_.candidates(i)[choice].time, windows.length);
      }
    }
  }
}

TEST_F(DiscretizeTest, TheSameInputGivesTheSamePlan) {
  const frontier::Solution solution = Solve(20);
  EXPECT_EQ(*Discretize(graph_, planner_.network(), solution, {SearchEffort::kFull}),
            *Discretize(graph_, planner_.network(), solution, {SearchEffort::kFull}));
}

TEST(Discretize, AcceptsAGraphOfFixedInstructions) {
  schedule::InstructionGraph fixed;
  schedule::OptionSet set;
  set.name = "fixed";
  set.kind = InstructionKind::kOptimizer;
  set.options = {{0, {}, 10, 1.0, 1}};
  fixed.option_sets = {set};
  fixed.instructions = {{0, 0, -1}};
  fixed.pp_rank_orders = {{0}};
  fixed.pp_rank_names = {"pp_rank 0"};
  const Planner planner = *Planner::Create(fixed, {0, 0});
  const auto plan = planner.PlanFor(10);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->evaluation.energy_j, 1.0);
  EXPECT_EQ(plan->gap(), 0);
}

}  // namespace
}  // namespace perseus::plan
