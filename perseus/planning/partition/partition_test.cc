// Compares the searches for the fastest split and the split of least energy with exhaustive search.
#include "perseus/planning/partition/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <tuple>

#include "perseus/planning/profile/layer_profile.h"
#include "tests/support/every_split.h"

namespace perseus::partition {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kBlockingPowerW = 70;

std::vector<InstructionKind> KindsFor(const std::string& schedule) {
  if (schedule == "zb-h1") {
    return {InstructionKind::kForward, InstructionKind::kBackwardInput,
            InstructionKind::kBackwardWeight};
  }
  return {InstructionKind::kForward, InstructionKind::kBackward};
}

// Layers with different amounts of work, limited by compute or by memory. The first layer is light,
// and the last one is heavy.
profile::Profile PartitionRandomLayers(std::mt19937_64& random, int layers,
                                       std::span<const InstructionKind> kinds) {
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  std::vector<profile::ProfileEntry> entries;
  for (int layer = 0; layer < layers; ++layer) {
    const double work = layer == 0 ? 0.2 : layer == layers - 1 ? 2.0 : 0.7 + 0.6 * uniform();
    const double memory = 0.4 * uniform();
    for (const InstructionKind kind : kinds) {
      profile::ProfileEntry entry{layer, 0, kind, {}};
      const double time_s = (kind == InstructionKind::kBackward ? 0.02 : 0.01) * work;
      for (const double clock : {1.0, 0.9, 0.8, 0.7, 0.6}) {
        const double taken_s = time_s * ((1 - memory) / clock + memory);
        entry.options.push_back({static_cast<int>(std::lround(1000 * clock)),
                                 {},
                                 ToNanoseconds(taken_s),
                                 taken_s * (90 + 210 * clock * clock * clock),
                                 1});
      }
      entries.push_back(entry);
    }
  }
  return {"layers.csv", {}, entries};
}

struct JobSize {
  int most_stages = 4;        // At least 2.
  int most_extra_layers = 5;  // In addition to one for each stage; at least 1.
  int microbatches = 4;
};

PartitionJob RandomPartitionJob(std::mt19937_64& random, const std::string& schedule,
                                const JobSize& size = {}) {
  const int stages = 2 + static_cast<int>(random() % static_cast<unsigned>(size.most_stages - 1));
  const int layers =
      stages + 1 + static_cast<int>(random() % static_cast<unsigned>(size.most_extra_layers));
  PartitionJob job{
      .layers = PartitionRandomLayers(random, layers, KindsFor(schedule)),
      .schedule = *schedule::GenerateSchedule({schedule, stages, size.microbatches, 1}),
      .model = {}};
  job.model.blocking_power_w = kBlockingPowerW;
  return job;
}

plan::Planner PlannerOf(const PartitionJob& job, const Boundaries& split) {
  auto graph = schedule::BuildInstructionGraph(job.schedule,
                                               profile::StageProfile(job.layers, split), job.model);
  return *plan::Planner::Create(*std::move(graph), {kBlockingPowerW, 0});
}

void ForEachPlanner(const PartitionJob& job,
                    const std::function<void(const plan::Planner&)>& visit) {
  ForEachSplit(LayerCount(job.layers), static_cast<int>(job.schedule.pp_ranks.size()),
               [&](const Boundaries& split) { visit(PlannerOf(job, split)); });
}

// The best of all splits, without any test that excludes some.
Nanoseconds LeastTime(const PartitionJob& job) {
  Nanoseconds least = std::numeric_limits<Nanoseconds>::max();
  ForEachPlanner(
      job, [&](const plan::Planner& planner) { least = std::min(least, planner.baseline().time); });
  return least;
}

double LeastBound(const PartitionJob& job, Nanoseconds deadline) {
  double least = std::numeric_limits<double>::infinity();
  ForEachPlanner(job, [&](const plan::Planner& planner) {
    if (planner.least_time() > deadline) return;
    const auto bound = planner.BoundFor(deadline);
    ASSERT_TRUE(bound);
    least = std::min(least, *bound);
  });
  return least;
}

void CheckPromises(const Partition& partition) {
  const Nanoseconds deadline = partition.fastest.baseline.time;
  EXPECT_LE(deadline, partition.balanced.baseline.time);
  EXPECT_EQ(partition.balanced.plan.deadline, partition.balanced.baseline.time);
  EXPECT_EQ(partition.fastest.plan.deadline, deadline);
  EXPECT_EQ(partition.least_energy.plan.deadline, deadline);
  for (const PlannedSplit* split :
       {&partition.balanced, &partition.fastest, &partition.least_energy}) {
    EXPECT_LE(split->plan.evaluation.time, split->plan.deadline);
    EXPECT_GE(ImbalanceRatio(split->stage_times), ImbalanceRatio(partition.balanced.stage_times));
  }
  EXPECT_LE(partition.least_energy.plan.evaluation.energy_j,
            partition.fastest.plan.evaluation.energy_j);
  EXPECT_LE(partition.bounded, partition.candidates);
  EXPECT_GE(partition.gap(), 0);
}

TEST(PartitionLayers, FindsTheBestSplitIfItTriesAll) {
  std::mt19937_64 random(11);
  int gains = 0;
  int faster = 0;
  for (const char* schedule : {"1f1b", "gpipe", "zb-h1"}) {
    for (int run = 0; run < 40; ++run) {
      SCOPED_TRACE(testing::Message() << schedule << " " << run);
      const PartitionJob job = RandomPartitionJob(random, schedule);
      const auto partition = PartitionLayers(job);
      ASSERT_TRUE(partition) << partition.error().Message();
      CheckPromises(*partition);
      EXPECT_TRUE(partition->tried_all);
      EXPECT_EQ(partition->bounded, partition->candidates);
      EXPECT_EQ(partition->fastest.baseline.time, LeastTime(job));
      EXPECT_EQ(partition->lower_bound_j, LeastBound(job, partition->fastest.baseline.time));
      if (partition->fastest.boundaries != partition->balanced.boundaries) ++faster;
      if (partition->least_energy.boundaries != partition->fastest.boundaries) ++gains;
    }
  }
  EXPECT_GE(faster, 10);  // Otherwise the balanced split would always be the fastest.
  EXPECT_GE(gains, 3);
}

// Counts how often the local search ends at a split that is not the fastest, or at a bound that is
// not the least of all splits that are as fast, and by how much.
TEST(PartitionLayers, TheLocalSearchRarelyMissesTheBestSplit) {
  std::mt19937_64 random(13);
  constexpr int kRuns = 120;
  int slower = 0;
  int misses = 0;
  double slowest = 0;
  double worst = 0;
  for (int run = 0; run < kRuns; ++run) {
    SCOPED_TRACE(run);
    const PartitionJob job = RandomPartitionJob(
        random, "1f1b",
        {.most_stages = 6, .most_extra_layers = 10, .microbatches = 2 + 6 * (run % 2)});
    const auto searched = PartitionLayers(job, {.most_instructions = 0});
    const auto tried_all = PartitionLayers(job);
    ASSERT_TRUE(searched && tried_all);
    CheckPromises(*searched);
    EXPECT_FALSE(searched->tried_all);
    EXPECT_TRUE(tried_all->tried_all);
    const double slowdown =
        ToSeconds(searched->fastest.baseline.time) / ToSeconds(tried_all->fastest.baseline.time) -
        1;
    EXPECT_GE(slowdown, 0);
    slowest = std::max(slowest, slowdown);
    if (slowdown > 0) {
      ++slower;
      continue;
    }
    EXPECT_GE(searched->lower_bound_j, tried_all->lower_bound_j);
    if (searched->lower_bound_j > tried_all->lower_bound_j) ++misses;
    worst = std::max(worst, searched->lower_bound_j / tried_all->lower_bound_j - 1);
  }
  // partition.h has the result of 300 runs.
  EXPECT_LE(slower, 2) << "of " << kRuns << ", the slowest by " << slowest;
  EXPECT_LE(misses, 2) << "of " << kRuns << ", the worst by " << worst;
}

TEST(PartitionLayers, IsDeterministic) {
  std::mt19937_64 random(17);
  const PartitionJob job = RandomPartitionJob(random, "1f1b");
  const auto first = PartitionLayers(job);
  const auto second = PartitionLayers(job);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->least_energy.boundaries, second->least_energy.boundaries);
  EXPECT_EQ(first->least_energy.plan.options, second->least_energy.plan.options);
}

TEST(PartitionLayers, LimitsTheNumberOfPlans) {
  std::mt19937_64 random(19);
  const PartitionJob job = RandomPartitionJob(random, "1f1b");
  const auto partition = PartitionLayers(job, {.most_plans = 0});
  ASSERT_TRUE(partition);
  EXPECT_EQ(partition->least_energy.boundaries, partition->fastest.boundaries);
}

TEST(PartitionLayers, RefusesLayersAndSchedulesThatDoNotFit) {
  std::mt19937_64 random(23);
  PartitionJob job = RandomPartitionJob(random, "1f1b");
  const schedule::Schedule good = job.schedule;
  job.schedule = *schedule::GenerateSchedule({"1f1b", LayerCount(job.layers) + 1, 4, 1});
  EXPECT_THAT(PartitionLayers(job).error().Message(),
              AllOf(HasSubstr("layers.csv: "), HasSubstr("cannot fill")));
  job.schedule = *schedule::GenerateSchedule({"interleaved-1f1b", 2, 4, 2});
  EXPECT_THAT(PartitionLayers(job).error().Message(), HasSubstr("single chunk"));
  job.schedule = *schedule::GenerateSchedule({"zb-h1", 2, 4, 1});
  EXPECT_THAT(PartitionLayers(job).error().Message(), HasSubstr("layer 0 has no backward_input"));
  job.schedule = good;
  std::vector<profile::ProfileEntry> wasteful(job.layers.entries().begin(),
                                              job.layers.entries().end());
  for (profile::ProfileEntry& entry : wasteful) {
    for (profile::Option& option : entry.options) option.energy_j = 1e6 / option.frequency_mhz;
  }
  job.layers = profile::Profile("layers.csv", {}, std::move(wasteful));
  EXPECT_THAT(PartitionLayers(job).error().Message(), HasSubstr("split at layers 0,"));
}

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
  EXPECT_THAT(BalancedBoundaries(times, 3).error().Message(), HasSubstr("choose 1 to 2 stages"));
  EXPECT_FALSE(BalancedBoundaries(times, 0));
}

}  // namespace
}  // namespace perseus::partition
