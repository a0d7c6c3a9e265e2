// The balanced split against all splits, and the search for least energy against trying each.
#include "perseus/plan/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <random>
#include <string>
#include <tuple>

#include "perseus/profile/layer_profile.h"

namespace perseus {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Every way to cut, in lexicographic order.
void ForEachSplit(int layers, int stages, const std::function<void(const Boundaries&)>& visit,
                  Boundaries begun = {0}) {
  if (stages == 1) {
    begun.push_back(layers);
    visit(begun);
    return;
  }
  for (int end = begun.back() + 1; end + stages - 1 <= layers; ++end) {
    Boundaries next = begun;
    next.push_back(end);
    ForEachSplit(layers, stages - 1, visit, next);
  }
}

TEST(BalancedBoundaries, IsTheBestOfAllSplits) {
  std::mt19937_64 random(7);
  int ties = 0;
  for (int run = 0; run < 600; ++run) {
    SCOPED_TRACE(run);
    const int layers = 1 + static_cast<int>(random() % 10);
    const int stages = 1 + static_cast<int>(random() % static_cast<std::uint64_t>(layers));
    // A few values, for ties; a light embedding and a heavy head in every other run.
    std::vector<Nanoseconds> times;
    for (int i = 0; i < layers; ++i) {
      times.push_back(1 + static_cast<Nanoseconds>(random() % (run % 3 == 0 ? 3 : 1000)));
    }
    if (run % 2 == 0) {
      times.front() = 1;
      times.back() *= 3;
    }
    using Rank = std::tuple<Nanoseconds, Nanoseconds, Boundaries>;
    std::optional<Rank> best;
    int equals = 0;
    ForEachSplit(layers, stages, [&](const Boundaries& split) {
      const auto [shortest, longest] = std::ranges::minmax(StageTimes(times, split));
      const Rank rank{longest, -shortest, split};
      const bool is_tie = best && std::get<0>(*best) == longest && std::get<1>(*best) == -shortest;
      if (is_tie) ++equals;
      if (best && rank >= *best) return;
      if (!is_tie) equals = 0;
      best = rank;
    });
    ties += equals > 0 ? 1 : 0;
    const auto balanced = BalancedBoundaries(times, stages);
    ASSERT_TRUE(balanced);
    EXPECT_EQ(*balanced, std::get<2>(*best));
  }
  EXPECT_GT(ties, 50);  // The rule among equals is tested, too.
}

//  embedding  blocks            head
//      1      4  4  4  4  4  4    7      two longest stages of 12 cannot be avoided;
//     [1      4  4] [4  4  4]   [4  7]   the first gets the embedding.
TEST(BalancedBoundaries, GivesEmbeddingAndHeadTheirPlace) {
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

constexpr double kBlockingPowerW = 70;

std::vector<InstructionKind> KindsFor(const std::string& schedule) {
  if (schedule == "zb-h1") {
    return {InstructionKind::kForward, InstructionKind::kBackwardInput,
            InstructionKind::kBackwardWeight};
  }
  return {InstructionKind::kForward, InstructionKind::kBackward};
}

// Layers of unlike work, bound by compute or by memory; the first is light, the last heavy.
Profile RandomLayers(std::mt19937_64& random, int layers, std::span<const InstructionKind> kinds) {
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  std::vector<ProfileEntry> entries;
  for (int layer = 0; layer < layers; ++layer) {
    const double work = layer == 0 ? 0.2 : layer == layers - 1 ? 2.0 : 0.7 + 0.6 * uniform();
    const double memory = 0.4 * uniform();
    for (const InstructionKind kind : kinds) {
      ProfileEntry entry{layer, 0, kind, {}};
      const double time_s = (kind == InstructionKind::kBackward ? 0.02 : 0.01) * work;
      for (const double clock : {1.0, 0.9, 0.8, 0.7, 0.6}) {
        const double taken_s = time_s * ((1 - memory) / clock + memory);
        entry.options.push_back({1000 * clock,
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
  int most_extra_layers = 5;  // Beyond one a stage; at least 1.
  int microbatches = 4;
};

PartitionJob RandomPartitionJob(std::mt19937_64& random, const std::string& schedule,
                                const JobSize& size = {}) {
  const int stages = 2 + static_cast<int>(random() % static_cast<unsigned>(size.most_stages - 1));
  const int layers =
      stages + 1 + static_cast<int>(random() % static_cast<unsigned>(size.most_extra_layers));
  PartitionJob job{.layers = RandomLayers(random, layers, KindsFor(schedule)),
                   .schedule = *GenerateSchedule({schedule, stages, size.microbatches, 1}),
                   .model = {}};
  job.model.blocking_power_w = kBlockingPowerW;
  return job;
}

// The least bound of all splits, none left out beforehand.
double LeastBound(const PartitionJob& job, Nanoseconds deadline) {
  double least = std::numeric_limits<double>::infinity();
  ForEachSplit(job.layers.stages(), static_cast<int>(job.schedule.ranks.size()),
               [&](const Boundaries& split) {
                 auto graph =
                     BuildOperationGraph(job.schedule, StageProfile(job.layers, split), job.model);
                 const auto planner = Planner::Create(*std::move(graph), {kBlockingPowerW, 0});
                 ASSERT_TRUE(planner);
                 if (planner->least_time() > deadline) return;
                 const auto bound = planner->BoundFor(deadline);
                 ASSERT_TRUE(bound);
                 least = std::min(least, *bound);
               });
  return least;
}

void CheckPromises(const Partition& partition) {
  const Nanoseconds deadline = partition.balanced.baseline.time;
  for (const PlannedSplit* split : {&partition.balanced, &partition.least_energy}) {
    EXPECT_EQ(split->plan.deadline, deadline);
    EXPECT_LE(split->plan.evaluation.time, deadline);
  }
  EXPECT_LE(partition.least_energy.plan.evaluation.energy_j,
            partition.balanced.plan.evaluation.energy_j);
  EXPECT_LE(partition.bounded, partition.candidates);
  EXPECT_GE(partition.gap(), 0);
}

TEST(PartitionLayers, FindsTheLeastOfAllSplitsWhereItTriesAll) {
  std::mt19937_64 random(11);
  int gains = 0;
  for (const char* schedule : {"1f1b", "gpipe", "zb-h1"}) {
    for (int run = 0; run < 40; ++run) {
      SCOPED_TRACE(testing::Message() << schedule << " " << run);
      const PartitionJob job = RandomPartitionJob(random, schedule);
      const auto partition = PartitionLayers(job);
      ASSERT_TRUE(partition) << partition.error().message;
      CheckPromises(*partition);
      EXPECT_TRUE(partition->tried_all);
      EXPECT_EQ(partition->bounded, partition->candidates);
      EXPECT_EQ(partition->lower_bound_j, LeastBound(job, partition->balanced.baseline.time));
      if (partition->least_energy.boundaries != partition->balanced.boundaries) ++gains;
    }
  }
  EXPECT_GE(gains, 10);  // Else nothing was searched for.
}

// How often the local search ends at a worse bound than the best of all splits, and by how much.
TEST(PartitionLayers, SeldomMissesWhereItSearches) {
  std::mt19937_64 random(13);
  constexpr int kRuns = 120;
  int misses = 0;
  double worst = 0;
  for (int run = 0; run < kRuns; ++run) {
    SCOPED_TRACE(run);
    const PartitionJob job = RandomPartitionJob(
        random, "1f1b",
        {.most_stages = 6, .most_extra_layers = 10, .microbatches = 2 + 6 * (run % 2)});
    const auto searched = PartitionLayers(job, {.most_operations = 0});
    const auto tried_all = PartitionLayers(job);
    ASSERT_TRUE(searched && tried_all);
    CheckPromises(*searched);
    EXPECT_FALSE(searched->tried_all);
    EXPECT_TRUE(tried_all->tried_all);
    EXPECT_GE(searched->lower_bound_j, tried_all->lower_bound_j);
    if (searched->lower_bound_j > tried_all->lower_bound_j) ++misses;
    worst = std::max(worst, searched->lower_bound_j / tried_all->lower_bound_j - 1);
  }
  // Over 300 runs with up to 18 layers it missed 2, by at most 0.92 %; moving but one cut at a
  // time, 54, by up to 5.4 %.
  EXPECT_LE(misses, 2) << "of " << kRuns << ", the worst by " << worst;
}

TEST(PartitionLayers, IsTheSameTwice) {
  std::mt19937_64 random(17);
  const PartitionJob job = RandomPartitionJob(random, "1f1b");
  const auto first = PartitionLayers(job);
  const auto second = PartitionLayers(job);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->least_energy.boundaries, second->least_energy.boundaries);
  EXPECT_EQ(first->least_energy.plan.options, second->least_energy.plan.options);
}

TEST(PartitionLayers, PlansAtMostSoMany) {
  std::mt19937_64 random(19);
  const PartitionJob job = RandomPartitionJob(random, "1f1b");
  const auto partition = PartitionLayers(job, {.most_plans = 0});
  ASSERT_TRUE(partition);
  EXPECT_EQ(partition->least_energy.boundaries, partition->balanced.boundaries);
}

TEST(PartitionLayers, RefusesWhatItCannotCut) {
  std::mt19937_64 random(23);
  PartitionJob job = RandomPartitionJob(random, "1f1b");
  const Schedule good = job.schedule;
  job.schedule = *GenerateSchedule({"1f1b", job.layers.stages() + 1, 4, 1});
  EXPECT_THAT(PartitionLayers(job).error().message,
              AllOf(HasSubstr("layers.csv: "), HasSubstr("cannot fill")));
  job.schedule = *GenerateSchedule({"interleaved-1f1b", 2, 4, 2});
  EXPECT_THAT(PartitionLayers(job).error().message, HasSubstr("single chunk"));
  job.schedule = *GenerateSchedule({"zb-h1", 2, 4, 1});
  EXPECT_THAT(PartitionLayers(job).error().message, HasSubstr("layer 0 has no backward_input"));
  job.schedule = good;
  std::vector<ProfileEntry> wasteful(job.layers.entries().begin(), job.layers.entries().end());
  for (ProfileEntry& entry : wasteful) {
    for (Option& option : entry.options) option.energy_j = 1e6 / option.frequency_mhz;
  }
  job.layers = Profile("layers.csv", {}, std::move(wasteful));
  EXPECT_THAT(PartitionLayers(job).error().message, HasSubstr("split at layers 0,"));
}

}  // namespace
}  // namespace perseus
