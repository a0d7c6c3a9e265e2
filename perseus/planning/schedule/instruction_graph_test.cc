#include "perseus/planning/schedule/instruction_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "tests/support/seeds.h"

namespace perseus::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Instructions "a", "b", ..., each on its own pp_rank.
InstructionGraph MakeGraph(int instructions, std::vector<Dependency> dependencies) {
  InstructionGraph graph;
  graph.name = "work.json";
  for (int i = 0; i < instructions; ++i) {
    OptionSet set;
    set.name = std::string(1, static_cast<char>('a' + i % 26));
    graph.option_sets.push_back(set);
    graph.instructions.push_back({.option_set = i, .pp_rank = i});
    graph.pp_rank_names.push_back(set.name);
    graph.pp_rank_orders.push_back({i});
  }
  graph.dependencies = std::move(dependencies);
  return graph;
}

//   d -> c -> b -> a
TEST(SortTopologically, RenumbersEverything) {
  const auto sorted = SortTopologically(MakeGraph(4, {{1, 0, 10}, {2, 1, 20}, {3, 2, 30}}));
  ASSERT_TRUE(sorted) << sorted.error().Message();
  EXPECT_EQ(Describe(*sorted, 0), "\"d\"");
  EXPECT_EQ(Describe(*sorted, 3), "\"a\"");
  ASSERT_EQ(sorted->dependencies.size(), 3U);
  for (int i = 0; i < 3; ++i) {
    const Dependency& dependency = sorted->dependencies[static_cast<std::size_t>(i)];
    EXPECT_EQ(dependency.from, i);
    EXPECT_EQ(dependency.to, i + 1);
    EXPECT_EQ(dependency.delay, 30 - 10 * i);
  }
  EXPECT_THAT(sorted->pp_rank_orders,
              ElementsAre(ElementsAre(3), ElementsAre(2), ElementsAre(1), ElementsAre(0)));
}

TEST(SortTopologically, DoesNotChangeASortedGraph) {
  const auto sorted = SortTopologically(MakeGraph(4, {{0, 3}, {1, 2}}));
  ASSERT_TRUE(sorted) << sorted.error().Message();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(sorted->instructions[static_cast<std::size_t>(i)].option_set, i);
  }
}

//        ,-> c --.
//   a -> b       v
//        ^------ d -> e
TEST(SortTopologically, TheErrorNamesOnlyTheInstructionsOfTheCycle) {
  const auto sorted = SortTopologically(MakeGraph(5, {{0, 1}, {1, 2}, {2, 3}, {3, 1}, {3, 4}}));
  ASSERT_FALSE(sorted);
  EXPECT_EQ(sorted.error().Message().find("\"a\""), std::string::npos);
  EXPECT_EQ(sorted.error().Message().find("\"e\""), std::string::npos);
  EXPECT_THAT(sorted.error().Message(), HasSubstr("\"b\" -> \"c\" -> \"d\""));
  EXPECT_EQ(SortTopologically(MakeGraph(1, {{0, 0}})).error().Message(),
            "work.json: instructions wait for each other: \"a\" -> \"a\" (remove one of these "
            "dependencies; instructions on one resource also wait for those before them)");
}

TEST(SortTopologically, TheErrorShortensALongCycle) {
  std::vector<Dependency> ring;
  ring.reserve(20);
  for (int i = 0; i < 20; ++i) ring.push_back({i, (i + 1) % 20});
  EXPECT_THAT(SortTopologically(MakeGraph(20, ring)).error().Message(),
              HasSubstr(" -> 12 more -> "));
}

TEST(SortTopologically, SortsRandomGraphsAndFindsTheirCycles) {
  std::mt19937 random(1);
  auto below = [&](int end) { return std::uniform_int_distribution<int>(0, end - 1)(random); };
  for (std::uint64_t round = 0; round < Seeds(2000); ++round) {
    const int instructions = 1 + below(12);
    std::vector<int> hidden_order(static_cast<std::size_t>(instructions));
    std::iota(hidden_order.begin(), hidden_order.end(), 0);
    std::shuffle(hidden_order.begin(), hidden_order.end(), random);
    std::vector<Dependency> dependencies;
    for (int i = 0; i < 2 * instructions; ++i) {
      const int from = below(instructions);
      const int to = below(instructions);
      if (from < to) {
        dependencies.push_back({hidden_order[static_cast<std::size_t>(from)],
                                hidden_order[static_cast<std::size_t>(to)]});
      }
    }
    const auto sorted = SortTopologically(MakeGraph(instructions, dependencies));
    ASSERT_TRUE(sorted) << sorted.error().Message();
    for (const Dependency& dependency : sorted->dependencies) {
      ASSERT_LT(dependency.from, dependency.to);
    }
    // A dependency from the last to the first instruction closes a cycle exactly if there is a path
    // from the first to the last.
    if (!dependencies.empty()) {
      dependencies.push_back({dependencies[0].to, dependencies[0].from});
      EXPECT_FALSE(SortTopologically(MakeGraph(instructions, dependencies)));
    }
  }
}

//   a -> b: the durations fill the range of the planner, and the delay exceeds it.
TEST(CheckDurations, CountsDelaysAndTheSlowestOptions) {
  constexpr Nanoseconds kMost = std::numeric_limits<Nanoseconds>::max() / 8;
  InstructionGraph graph = MakeGraph(2, {{0, 1, 0}});
  graph.option_sets[0].options = {{1400, {}, 1, 1, 1}, {1000, {}, kMost - 1, 1, 1}};
  graph.option_sets[1].options = {{1400, {}, 1, 1, 1}};
  EXPECT_TRUE(CheckDurations(graph));
  graph.dependencies[0].delay = 1;
  ASSERT_FALSE(CheckDurations(graph));
  EXPECT_THAT(CheckDurations(graph).error().Message(), HasSubstr("work.json: the durations"));
  graph.dependencies[0].delay = std::numeric_limits<Nanoseconds>::max();
  EXPECT_FALSE(CheckDurations(graph));
}

}  // namespace
}  // namespace perseus::schedule
