#include "perseus/planning/partition/balanced_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <random>
#include <tuple>

#include "tests/support/every_split.h"

namespace perseus::partition {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The ratio in lowest terms, so that equal ratios compare equal.
std::pair<Nanoseconds, Nanoseconds> Ratio(Nanoseconds longest, Nanoseconds shortest) {
  const Nanoseconds divisor = std::gcd(longest, shortest);
  return {longest / divisor, shortest / divisor};
}

// In every second run, the first and last layers (embedding and head) differ from the others. In
// every third run, the times have only a few values, so that ties occur.
std::vector<Nanoseconds> RandomLayers(std::mt19937_64& random, int run, int layers) {
  std::vector<Nanoseconds> times;
  for (int i = 0; i < layers; ++i) {
    times.push_back(1 + static_cast<Nanoseconds>(random() % (run % 3 == 0 ? 3 : 1000)));
  }
  if (run % 2 == 0) {
    times.front() = 1;
    times.back() *= 3;
  }
  return times;
}

TEST(BalancedBoundaries, AreTheBestOfAllSplits) {
  std::mt19937_64 random(7);
  int ties = 0;
  int differ = 0;
  for (int run = 0; run < 600; ++run) {
    SCOPED_TRACE(run);
    const int layers = 1 + static_cast<int>(random() % 11);
    const int stages = 1 + static_cast<int>(random() % static_cast<std::uint64_t>(layers));
    const std::vector<Nanoseconds> times = RandomLayers(random, run, layers);
    // The order of one function is by ratio, longest stage and cuts. The order of the other is by
    // longest stage, shortest stage and cuts.
    std::optional<std::pair<Nanoseconds, Boundaries>> even;
    std::pair<Nanoseconds, Nanoseconds> ratio;
    std::optional<std::tuple<Nanoseconds, Nanoseconds, Boundaries>> short_stages;
    bool is_tie = false;
    ForEachSplit(layers, stages, [&](const Boundaries& split) {
      const auto [shortest, longest] = std::ranges::minmax(StageTimes(times, split));
      const bool is_better = !even || longest * ratio.second < ratio.first * shortest;
      const bool is_equal = even && Ratio(longest, shortest) == ratio;
      is_tie = !is_better && (is_tie || is_equal);
      if (is_better || (is_equal && std::pair(longest, split) < *even)) even = {longest, split};
      if (is_better) ratio = Ratio(longest, shortest);
      const std::tuple rank{longest, -shortest, split};
      if (!short_stages || rank < *short_stages) short_stages = rank;
    });
    ties += is_tie ? 1 : 0;
    differ += even->second != std::get<2>(*short_stages) ? 1 : 0;
    const auto balanced = BalancedBoundaries(times, stages);
    ASSERT_TRUE(balanced);
    EXPECT_EQ(*balanced, even->second);
    const auto shortest_longest = ShortestLongestBoundaries(times, stages);
    ASSERT_TRUE(shortest_longest);
    EXPECT_EQ(*shortest_longest, std::get<2>(*short_stages));
  }
  EXPECT_GT(ties, 50);    // The rules for ties are tested, too.
  EXPECT_GE(differ, 10);  // A longer longest stage can have less imbalance.
}

//  1  8  5  3  3  3  2
// [1][8][5  3][3  3  2]     no stage takes more than 8, and one takes 8 times as long as another
// [1  8][5][3  3][3  2]     one stage takes 9, which is 1.8 times as long as another
TEST(BalancedBoundaries, MayHaveALongerLongestStage) {
  const std::vector<Nanoseconds> times{1, 8, 5, 3, 3, 3, 2};
  EXPECT_THAT(*ShortestLongestBoundaries(times, 4), ElementsAre(0, 1, 2, 4, 7));
  EXPECT_THAT(*BalancedBoundaries(times, 4), ElementsAre(0, 2, 3, 5, 7));
}

// The sum of thousands of layers nearly fills 64 bits.
TEST(BalancedBoundaries, AcceptsManyAndLongLayers) {
  constexpr int kLayers = 2000;
  std::vector<Nanoseconds> times(kLayers, std::numeric_limits<Nanoseconds>::max() / kLayers);
  times.front() /= 2;
  const auto balanced = BalancedBoundaries(times, 8);
  ASSERT_TRUE(balanced);
  EXPECT_LT(ImbalanceRatio(StageTimes(times, *balanced)), 1.005);  // 1 of 250 layers.
}

//  embedding  blocks            head
//      1      4  4  4  4  4  4    7      the first stage has the embedding and two blocks,
//     [1      4  4] [4  4  4]   [4  7]   the last one a block and the head.
TEST(BalancedBoundaries, BalancesEmbeddingAndHead) {
  const std::vector<Nanoseconds> times{1, 4, 4, 4, 4, 4, 4, 7};
  const auto balanced = BalancedBoundaries(times, 3);
  ASSERT_TRUE(balanced);
  EXPECT_THAT(*balanced, ElementsAre(0, 3, 6, 8));
  const auto stage_times = StageTimes(times, *balanced);
  EXPECT_THAT(stage_times, ElementsAre(9, 12, 11));
  EXPECT_DOUBLE_EQ(ImbalanceRatio(stage_times), 12.0 / 9);
}

TEST(BalancedBoundaries, NeedsALayerForEachStage) {
  const std::vector<Nanoseconds> times{1, 2};
  EXPECT_THAT(BalancedBoundaries(times, 3).error().message, HasSubstr("choose 1 to 2 stages"));
  EXPECT_FALSE(BalancedBoundaries(times, 0));
}

}  // namespace
}  // namespace perseus::partition
