// Properties of every search, over random small jobs.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/planning/schedule_search/finalists.h"
#include "perseus/planning/schedule_search/order_bound.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus::schedule_search {
namespace {

using Kind = InstructionKind;

struct RandomJob {
  synthetic::SyntheticProfileSpec spec;
  int microbatches = 0;
  int more = 0;
  double p2p_s = 0;
  double latency_s = 0;

  std::string Name() const {
    return fmt::format("{} pp_ranks, {} chunks, {} microbatches, +{}, {} kinds, seed {}",
                       spec.pp_ranks, spec.chunks, microbatches, more, spec.kinds.size(),
                       spec.seed);
  }
  bool is_folded() const { return spec.placement == synthetic::ChunkPlacement::kV; }
};

RandomJob MakeRandomJob(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<int>(random() % n); };
  RandomJob job;
  job.spec.seed = seed;
  job.spec.pp_ranks = 2 + below(3);
  job.spec.chunks = 1 + below(2);
  job.spec.imbalance = 0.1 * below(4);
  if (job.spec.chunks == 2 && below(2) == 0) {
    job.spec.placement = synthetic::ChunkPlacement::kV;
  }
  if (below(2) == 0) {
    job.spec.kinds = {Kind::kForward, Kind::kBackward, Kind::kBackwardInput, Kind::kBackwardWeight};
  }
  job.microbatches = job.spec.pp_ranks * (1 + below(2));
  job.more = below(4);
  job.p2p_s = below(2) == 0 ? 0 : 0.002;
  job.latency_s = below(2) == 0 ? 0 : 0.01;
  return job;
}

// The maximum that a pp_rank holds at any time while the plan runs. A forward allocates when it
// starts, and a full backward or a wgrad frees when it ends.
std::vector<std::int64_t> PeaksInTime(const schedule::Schedule& schedule,
                                      const plan::Evaluation& evaluation,
                                      const schedule::InstructionGraph& graph) {
  std::vector<std::int64_t> peaks;
  for (std::size_t pp_rank = 0; pp_rank < schedule.pp_ranks.size(); ++pp_rank) {
    std::vector<std::pair<Nanoseconds, int>> changes;  // At equal times, ends come first.
    for (std::size_t i = 0; i < schedule.pp_ranks[pp_rank].size(); ++i) {
      const std::size_t node = At(graph.pp_rank_orders[pp_rank][i]);
      const Nanoseconds start = evaluation.starts[node];
      const Kind kind = schedule.pp_ranks[pp_rank][i].kind;
      if (kind == Kind::kForward) changes.emplace_back(start, 1);
      if (kind == Kind::kBackward || kind == Kind::kBackwardWeight) {
        changes.emplace_back(start + evaluation.durations[node], -1);
      }
    }
    std::ranges::sort(changes);
    std::int64_t held = 0;
    std::int64_t peak = 0;
    for (const auto& [time, change] : changes) peak = std::max(peak, held += change);
    peaks.push_back(peak);
  }
  return peaks;
}

// Checks every data dependency with the times of the plan.
void ExpectDependenciesHold(const schedule::InstructionGraph& graph,
                            const plan::Evaluation& evaluation) {
  for (const schedule::Dependency& dependency : graph.dependencies) {
    const std::size_t from = At(dependency.from);
    EXPECT_GE(evaluation.starts[At(dependency.to)],
              evaluation.starts[from] + evaluation.durations[from] + dependency.delay);
  }
}

TEST(SearchProperties, HoldForRandomJobs) {
  for (std::uint32_t seed = 1; seed <= 24; ++seed) {
    const RandomJob random = MakeRandomJob(seed);
    SCOPED_TRACE(random.Name());
    const auto profile = synthetic::SynthesizeProfile(random.spec);
    ASSERT_TRUE(profile) << profile.error().Message();
    SearchJob job{
        .profile = *profile,
        .model = {},
        .execution = {.blocking_power_w = 84, .switch_latency = ToNanoseconds(random.latency_s)},
        .pp_ranks = random.spec.pp_ranks,
        .microbatches = random.microbatches,
        .changes = {},
        .placement = random.is_folded() ? Placement::kV : Placement::kLoop};
    job.model.blocking_power_w = 84;
    job.model.fixed.p2p = ToNanoseconds(random.p2p_s);
    const auto reference = FindReference(job);
    ASSERT_TRUE(reference) << reference.error().Message();
    const MemoryLimit limit = MoreInFlight(*reference, random.more);
    const SearchEffort effort{.evaluations = 60};
    const auto found = FindSchedule(job, reference->time, limit, effort);
    ASSERT_TRUE(found) << found.error().Message();
    // Deterministic.
    EXPECT_EQ(FindSchedule(job, reference->time, limit, effort)->schedule.pp_ranks,
              found->schedule.pp_ranks);
    const plan::SearchLimits first{.effort = plan::kFirstLook, .stop = {}, .finish = {}};
    const auto best = PlanBestFinalist(job, *reference, *found, limit, first);
    ASSERT_TRUE(best) << best.error().Message();

    // Each instruction runs once, and the schedule does not deadlock.
    const schedule::Schedule& schedule = best->candidate.schedule;
    EXPECT_FALSE(schedule::FindDefect(schedule).has_value());
    const auto graph = schedule::BuildInstructionGraph(schedule, *profile, job.model);
    ASSERT_TRUE(graph) << graph.error().Message();
    ExpectDependenciesHold(*graph, best->plan.evaluation);
    EXPECT_LE(best->plan.evaluation.time, reference->time);

    // At any time of the plan, the memory is within the limit.
    const auto peaks = PeaksInTime(schedule, best->plan.evaluation, *graph);
    for (std::size_t i = 0; i < peaks.size(); ++i) {
      EXPECT_LE(peaks[i], limit.of_pp_rank[i]) << "pp_rank " << i;
      EXPECT_LE(peaks[i], best->candidate.in_flight[i]) << "pp_rank " << i;
    }

    // The bounds. Sums of doubles are rounded.
    EXPECT_LE(best->candidate.relaxed_energy_j, best->plan.evaluation.energy_j * (1 + 1e-9));
    const auto bound_j = BoundOfAnyOrder(job, reference->time, limit);
    ASSERT_TRUE(bound_j) << bound_j.error().Message();
    if (*bound_j) {
      EXPECT_LE(**bound_j, best->plan.evaluation.energy_j * (1 + 1e-9));
    }
  }
}

}  // namespace
}  // namespace perseus::schedule_search
