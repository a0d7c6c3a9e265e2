// Which clocks of a pp_rank are useful.
#include "perseus/planning/few_switches/rank_clocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/support/planning_jobs.h"

namespace perseus::few_switches {
namespace {

using ::testing::ElementsAre;

constexpr int kUnmeasured = RankClocks::kUnmeasured;

// The clocks of two instructions of one pp_rank. The first one was measured at 1400, 1250 and
// 1200 MHz. 1200 MHz is slower than 1250 MHz and needs more energy.
RankClocks ClocksWith(std::vector<profile::Option> second) {
  std::vector<schedule::OptionSet> sets(2);
  sets[0].options = {{1400, {}, 10 * kMillisecond, 5, 1},
                     {1250, {}, 12 * kMillisecond, 3, 1},
                     {1200, {}, 13 * kMillisecond, 4, 1}};
  sets[1].options = std::move(second);
  return CollectClocks(MakeChain(std::move(sets)), 0).front();
}

TEST(CollectClocks, LeavesOutAClockIfAnotherOneIsAtLeastAsGoodEverywhere) {
  const RankClocks rank = ClocksWith({{1400, {}, 10 * kMillisecond, 5, 1},
                                      {1250, {}, 14 * kMillisecond, 2, 1},
                                      {1200, {}, 14 * kMillisecond, 2, 1}});
  EXPECT_THAT(rank.options, ElementsAre(0, 1, 0, 1));
}

// At its power limit, a GPU reaches none of the higher clocks.
TEST(CollectClocks, OfEqualClocksTheLowestStays) {
  std::vector<schedule::OptionSet> sets(1);
  sets[0].options = {{1400, {}, 10 * kMillisecond, 5, 1},
                     {1350, {}, 10 * kMillisecond, 5, 1},
                     {1300, {}, 10 * kMillisecond, 5, 1},
                     {1250, {}, 12 * kMillisecond, 3, 1}};
  const RankClocks rank = CollectClocks(MakeChain(std::move(sets)), 0).front();
  EXPECT_THAT(rank.options, ElementsAre(2, 3));
}

// The second instruction was not measured at 1250 MHz, so it has the time and energy of the nearest
// clock, 1200 MHz. But only 1200 MHz runs both instructions without a change.
TEST(CollectClocks, AnUnmeasuredClockReplacesNoMeasuredOne) {
  const RankClocks rank =
      ClocksWith({{1400, {}, 10 * kMillisecond, 5, 1}, {1200, {}, 14 * kMillisecond, 2, 1}});
  EXPECT_THAT(rank.options, ElementsAre(0, 1, 2, 0, kUnmeasured, 1));
  EXPECT_EQ(rank.times[rank.Cell(1, 1)], rank.times[rank.Cell(1, 2)]);
}

// Another knob needs no clock change.
TEST(CollectClocks, OtherKnobsAreNoClocks) {
  std::vector<schedule::OptionSet> sets(1);
  sets[0].options = {{1400, {2}, 11 * kMillisecond, 4, 1},
                     {1400, {1}, 10 * kMillisecond, 5, 1},
                     {1250, {1}, 12 * kMillisecond, 3, 1}};
  schedule::InstructionGraph graph = MakeChain(std::move(sets));
  graph.other_knob_names = {"sm_count"};
  const RankClocks rank = CollectClocks(graph, 0).front();
  EXPECT_THAT(rank.options, ElementsAre(1, 2));
  EXPECT_EQ(rank.LeastCost(0, 0), rank.slower[0][0].energy);
  EXPECT_EQ(rank.LeastCost(1, 0), rank.energies[1]);
}

}  // namespace
}  // namespace perseus::few_switches
