// The start of the search, and the descent at its end.
#include "perseus/planning/few_switches/segment_search.h"

#include <gtest/gtest.h>

#include "perseus/planning/few_switches/rank_clocks.h"
#include "perseus/planning/plan/evaluation.h"
#include "tests/support/planning_jobs.h"
#include "tests/support/seeds.h"

namespace perseus::few_switches {
namespace {

// Contains the objects that a search of a random pipeline keeps references to.
struct SearchedJob {
  explicit SearchedJob(std::uint64_t seed, const schedule::SwitchCost& cost = {})
      : planner(*plan::Planner::Create(
            RandomJob({.shape = JobShape::kPipeline, .instructions = 32, .options = 6}, seed),
            {.blocking_power_w = RandomBlockingPower(seed), .switch_cost = cost},
            plan::Planner::FewOptions::kAccept)),
        ranks(CollectClocks(planner.graph(), planner.model().blocking_power_w)),
        deadline(planner.baseline().time + planner.baseline().time / 20),
        search(planner, ranks, deadline, 2 * planner.model().blocking_power_w,
               planner.model().blocking_power_w * planner.pp_ranks(), cost.stall) {}

  plan::Planner planner;
  std::vector<RankClocks> ranks;
  Nanoseconds deadline;
  SegmentSearch search;
};

// The best plan of a short search from the fastest clocks.
bool SearchShortly(SearchedJob& job, int most_changes, std::uint64_t seed) {
  std::vector<Ring> start(job.ranks.size(), Ring{{0, 0}});
  if (!job.search.IsMeasured(start)) return false;
  job.search.Anneal(start, most_changes, {.moves = 256, .seed = seed});
  return job.search.best().has_value();
}

TEST(Polish, LeavesNoSmallStepThatPays) {
  int improved = 0;
  for (std::uint64_t seed = 0; seed < Seeds(400); ++seed) {
    SCOPED_TRACE(seed);
    SearchedJob job(seed);
    constexpr int kMostChanges = 4;
    if (!SearchShortly(job, kMostChanges, seed)) continue;
    const double before_j = job.search.best()->energy_j;
    job.search.Polish(1'000'000);
    const SegmentSearch::Found found = *job.search.best();
    EXPECT_LE(found.energy_j, before_j);
    improved += found.energy_j < before_j ? 1 : 0;

    const plan::Evaluator evaluator(job.planner.graph(), job.planner.model());
    const plan::Evaluation polished = evaluator.Evaluate(job.search.OptionsOf(found.rings));
    EXPECT_LE(polished.time, job.deadline);
    EXPECT_NEAR(polished.energy_j, found.energy_j, 1e-6);
    for (std::size_t r = 0; r < found.rings.size(); ++r) {
      ASSERT_LE(found.rings[r].size(), MostSegments(kMostChanges));
      for (std::size_t j = 0; j < found.rings[r].size(); ++j) {
        for (const int amount : {-1, 1}) {
          std::vector<Ring> rings = found.rings;
          int& clock = rings[r][j].clock;
          clock += amount;
          if (clock < 0 || clock >= job.ranks[r].clocks || !job.search.IsMeasured(rings)) continue;
          const plan::Evaluation other = evaluator.Evaluate(job.search.OptionsOf(rings));
          if (other.time > job.deadline) continue;
          EXPECT_GE(other.energy_j, polished.energy_j - 1e-6) << r << ' ' << j;
        }
      }
    }
  }
  EXPECT_GT(improved, 0);
}

TEST(Polish, EndsAfterItsTries) {
  SearchedJob job(1);
  ASSERT_TRUE(SearchShortly(job, 4, 1));
  const double before_j = job.search.best()->energy_j;
  job.search.Polish(0);
  EXPECT_EQ(job.search.best()->energy_j, before_j);
}

TEST(Polish, CountsTheCostOfEveryChangeOfItsStart) {
  int with_changes = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    SearchedJob job(seed, {.stall = kMillisecond, .energy_j = 0.5});
    if (!SearchShortly(job, 4, seed)) continue;
    job.search.Polish(0);
    const SegmentSearch::Found& found = *job.search.best();
    const plan::Evaluator evaluator(job.planner.graph(), job.planner.model());
    const plan::Evaluation evaluated = evaluator.Evaluate(job.search.OptionsOf(found.rings));
    EXPECT_NEAR(evaluated.energy_j, found.energy_j, 1e-6);
    with_changes += evaluated.switches > 0 ? 1 : 0;
  }
  EXPECT_GT(with_changes, 0);
}

// Time costs twice the blocking power of one GPU (SearchedJob). The energy includes waiting.
TEST(BestMix, IsTheCheapestIfTimeHasAPrice) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < Seeds(100); ++seed) {
    SCOPED_TRACE(seed);
    SearchedJob job(seed);
    std::vector<Ring> rings;
    for (const RankClocks& rank : job.ranks) rings.push_back({{0, rank.clocks / 2}});
    constexpr int kMostChanges = 2;
    const plan::Evaluator evaluator(job.planner.graph(), job.planner.model());
    const auto cost_of = [&](const std::vector<Ring>& mix) {
      const plan::Evaluation evaluated = evaluator.Evaluate(job.search.OptionsOf(mix));
      return evaluated.energy_j +
             2 * job.planner.model().blocking_power_w * ToSeconds(evaluated.time);
    };
    std::optional<double> least;
    for (const std::vector<Ring>& mix : RingMoves(job.ranks).Mixes(rings, kMostChanges)) {
      if (job.search.IsMeasured(mix)) least = std::min(least.value_or(cost_of(mix)), cost_of(mix));
    }
    const std::optional<std::vector<Ring>> best = job.search.BestMix(rings, kMostChanges);
    ASSERT_EQ(best.has_value(), least.has_value());
    if (!best) continue;
    ++compared;
    EXPECT_NEAR(cost_of(*best), *least, 1e-6);
  }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace perseus::few_switches
