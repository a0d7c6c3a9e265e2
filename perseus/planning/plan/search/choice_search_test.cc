// Tests of ChoiceSearch: it is deterministic, goes on where it ended, and more effort is never
// worse.
#include "perseus/planning/plan/search/choice_search.h"

#include <gtest/gtest.h>

#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/search/rounding.h"
#include "tests/support/planning_jobs.h"

namespace perseus::plan {
namespace {

class ChoiceSearchTest : public ::testing::Test {
 protected:
  frontier::Solution Solve(int tenths_percent) const {
    const Nanoseconds time = planner_.baseline().time;
    return *frontier::SolveDeadline(planner_.network(), time + time / 1000 * tenths_percent);
  }
  ChoiceSearch Search(const frontier::Solution& solution) const {
    return {graph_, planner_.network(), solution};
  }
  double Energy(const Choices& choices) const { return graph_.EffectiveEnergy(choices); }

  const Planner planner_ = *Planner::Create(MakeSyntheticJob({}), {kSyntheticBlockingPowerW, 0});
  const ChoiceGraph graph_{planner_.graph(), kSyntheticBlockingPowerW};
};

TEST_F(ChoiceSearchTest, MoreEffortIsNeverWorseAndNeverLate) {
  for (const int slowdown : {0, 13, 100}) {
    SCOPED_TRACE(slowdown);
    const frontier::Solution solution = Solve(slowdown);
    const Windows windows = WindowsOf(planner_.network(), solution);
    double last_j = Energy(DiffuseRounding(graph_, windows, TimeDirection::kForward));
    const double rounded_j = last_j;
    for (int effort = kFirstLook; effort <= 3; ++effort) {
      const Result<Choices> choices = Search(solution).Spend({.effort = effort});
      ASSERT_TRUE(choices);
      EXPECT_LE(Energy(*choices), last_j) << effort;
      last_j = Energy(*choices);
      const std::vector<Nanoseconds> starts = EarliestStarts(graph_, *choices);
      for (int i = 0; i < graph_.instructions(); ++i) {
        const auto at = static_cast<std::size_t>(i);
        const auto choice = static_cast<std::size_t>((*choices)[at]);
        EXPECT_LE(starts[at] + graph_.candidates(i)[choice].time, windows.length);
      }
    }
    EXPECT_LT(last_j, rounded_j);
  }
}

// A search that goes on is the same as one with the whole effort at once.
TEST_F(ChoiceSearchTest, GoesOnAsIfItHadNotEnded) {
  const frontier::Solution solution = Solve(20);
  ChoiceSearch steps = Search(solution);
  for (const int effort : {kFirstLook, 1, 2}) {
    EXPECT_EQ(*steps.Spend({.effort = effort}), *Search(solution).Spend({.effort = effort}));
  }
  const Choices best = *steps.Spend({.effort = 2});
  EXPECT_EQ(*steps.Spend({.effort = kFirstLook}), best);
}

TEST_F(ChoiceSearchTest, AFinishKeepsTheFirstLook) {
  const frontier::Solution solution = Solve(20);
  std::stop_source finish;
  finish.request_stop();
  EXPECT_EQ(*Search(solution).Spend({.effort = 5, .finish = finish.get_token()}),
            *Search(solution).Spend({.effort = kFirstLook}));
}

TEST(ChoiceSearch, AcceptsAGraphOfFixedInstructions) {
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
