// Rings of segments, and the timeline that the search updates.
#include "perseus/planning/few_switches/segment_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/planning_jobs.h"
#include "tests/support/seeds.h"

namespace perseus::few_switches {
namespace {

using ::testing::ElementsAre;

TEST(Ring, JoinsTheEndWithTheBeginning) {
  EXPECT_THAT(MakeRing({2, 2, 2}), ElementsAre(Segment{0, 2}));
  EXPECT_THAT(MakeRing({1, 1, 0, 0, 1}), ElementsAre(Segment{2, 0}, Segment{4, 1}));
  EXPECT_THAT(MakeRing({1, 0, 0, 2}), ElementsAre(Segment{0, 1}, Segment{1, 0}, Segment{3, 2}));
}

TEST(Ring, GivesItsClocksBack) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    std::vector<int> clocks(1 + random() % 9);
    for (int& clock : clocks) clock = static_cast<int>(random() % 3);
    EXPECT_EQ(ClocksOf(MakeRing(clocks), static_cast<int>(clocks.size())), clocks);
  }
}

TEST(Timeline, AgreesWithTheEvaluator) {
  for (std::uint64_t seed = 0; seed < Seeds(200); ++seed) {
    SCOPED_TRACE(seed);
    const schedule::InstructionGraph graph = RandomJob({.instructions = 9}, seed);
    const plan::Evaluator evaluator(graph, {});
    std::mt19937_64 random(seed);
    std::vector<int> options(graph.instructions.size(), 0);
    std::vector<Nanoseconds> durations;
    for (std::size_t i = 0; i < options.size(); ++i) {
      durations.push_back(graph.options_of(static_cast<int>(i)).options.front().time);
    }
    Timeline timeline(graph);
    timeline.Reset(durations);
    for (int step = 0; step < 30; ++step) {
      std::vector<int> tried = options;
      std::vector<Timeline::Change> changes;
      bool only_slower = true;
      // In topological order, which is also the order of each pp_rank.
      for (std::size_t i = 0; i < options.size(); ++i) {
        if (random() % 3 != 0) continue;
        const auto& set = graph.options_of(static_cast<int>(i)).options;
        tried[i] = static_cast<int>(random() % set.size());
        const Nanoseconds duration = set[At(tried[i])].time;
        only_slower &= duration >= timeline.duration(static_cast<int>(i));
        changes.push_back({static_cast<int>(i), duration});
      }
      const Nanoseconds expected = evaluator.Evaluate(tried).time;
      if (only_slower) {
        EXPECT_LE(timeline.TimeAtLeast(changes), expected);
      }
      EXPECT_EQ(timeline.Try(changes), expected);
      if (random() % 2 == 0) {
        timeline.Keep();
        options = tried;
      } else {
        timeline.Undo();
      }
      EXPECT_EQ(timeline.time(), evaluator.Evaluate(options).time);
    }
  }
}

}  // namespace
}  // namespace perseus::few_switches
