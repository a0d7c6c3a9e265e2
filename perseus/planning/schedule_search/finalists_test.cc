#include "perseus/planning/schedule_search/finalists.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "perseus/planning/schedule/schedule.h"
#include "perseus/planning/schedule_search/tradeoff.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus::schedule_search {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Le;

constexpr int kStages = 4;
constexpr int kMicrobatches = 6;

profile::Profile FinalistsProfile() {
  return *synthetic::SynthesizeProfile({.pp_ranks = kStages, .imbalance = 0.1});
}

SearchJob FinalistsJob(const profile::Profile& profile) {
  SearchJob job{.profile = profile,
                .model = {},
                .execution = {.blocking_power_w = 84},
                .pp_ranks = kStages,
                .microbatches = kMicrobatches};
  job.model.blocking_power_w = 84;
  return job;
}

const plan::SearchLimits kFirst{.effort = plan::kFirstLook, .stop = {}, .finish = {}};

// The generated schedules with one chunk that need at most `more` microbatches more than 1F1B.
std::vector<schedule::Schedule> GeneratedWithin(const Reference& reference, int more) {
  std::vector<schedule::Schedule> all;
  for (const std::string name : {"1f1b", "gpipe"}) {
    all.push_back(*schedule::GenerateSchedule(
        {.name = name, .pp_ranks = kStages, .microbatches = kMicrobatches}));
  }
  for (int deeper = 1; deeper <= more; ++deeper) {
    std::vector<int> in_flight;
    for (int pp_rank = 0; pp_rank < kStages; ++pp_rank) {
      in_flight.push_back(kStages - pp_rank + (pp_rank + 1 < kStages ? deeper : 0));
    }
    all.push_back(*schedule::GenerateWarmupSchedule(kMicrobatches, in_flight));
  }
  std::erase_if(all, [&](const schedule::Schedule& schedule) {
    const auto peaks = schedule::PeakInFlight(schedule);
    for (std::size_t i = 0; i < peaks.size(); ++i) {
      if (peaks[i] > reference.in_flight[i] + more) return true;
    }
    return false;
  });
  return all;
}

// The relaxation knows neither the latency nor the limit on changes, so only the plans show which
// schedule is better.
TEST(PlanBestFinalist, IsNoWorseThanThePlanOfAnyGeneratedSchedule) {
  const profile::Profile profile = FinalistsProfile();
  for (const Nanoseconds latency : {Nanoseconds{0}, 10 * kMillisecond}) {
    for (const std::optional<int> most : {std::optional<int>(), std::optional(2)}) {
      SearchJob job = FinalistsJob(profile);
      job.execution.switch_latency = latency;
      job.changes.most_changes = most;
      const auto reference = FindReference(job);
      for (const int more : {0, 1, 2}) {
        SCOPED_TRACE(fmt::format("latency {}, {} changes, +{}", latency, most.value_or(-1), more));
        const MemoryLimit limit = MoreInFlight(*reference, more);
        const auto searched = FindSchedule(job, reference->time, limit);
        ASSERT_TRUE(searched);
        const auto best = PlanBestFinalist(job, *reference, *searched, limit, kFirst);
        ASSERT_TRUE(best) << best.error().Message();
        EXPECT_THAT(best->plan.evaluation.time, Le(reference->time));
        if (most) {
          EXPECT_THAT(best->plan.evaluation.pp_rank_switches, Each(Le(*most)));
        }
        for (std::size_t i = 0; i < limit.of_pp_rank.size(); ++i) {
          EXPECT_LE(best->candidate.in_flight[i], limit.of_pp_rank[i]);
        }
        for (const schedule::Schedule& generated : GeneratedWithin(*reference, more)) {
          const auto planned = PlanCandidate(job, *reference, {.schedule = generated}, kFirst);
          if (!planned) continue;  // No plan is as fast as the reference.
          EXPECT_LE(best->plan.evaluation.energy_j, planned->plan.evaluation.energy_j)
              << generated.name;
        }
      }
    }
  }
}

// A plan with few changes must not be compared with a plan with many changes.
TEST(PlanBestFinalist, ReplacesAScheduleWithAWorsePlan) {
  const profile::Profile profile = FinalistsProfile();
  const SearchJob job = FinalistsJob(profile);
  const auto reference = FindReference(job);
  const MemoryLimit limit = MoreInFlight(*reference, 1);
  // Simulates a search that has found nothing better than 1F1B.
  const Candidate poor{.schedule = reference->schedule, .origin = "poor"};
  const auto best = PlanBestFinalist(job, *reference, poor, limit, kFirst);
  const auto of_poor = PlanCandidate(job, *reference, poor, kFirst);
  ASSERT_TRUE(best && of_poor);
  EXPECT_LT(best->plan.evaluation.energy_j, of_poor->plan.evaluation.energy_j);
  EXPECT_NE(best->candidate.origin, "poor");
  // Schedules that fit an earlier memory limit are not compared again.
  const auto again = PlanBestFinalist(job, *reference, poor, limit, kFirst, &limit);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->candidate.origin, "poor");
}

TEST(PlanBetterGenerated, LooksOnlyAtFurtherMemory) {
  const profile::Profile profile = FinalistsProfile();
  const SearchJob job = FinalistsJob(profile);
  const auto reference = FindReference(job);
  const MemoryLimit same = MoreInFlight(*reference, 0);
  const MemoryLimit more = MoreInFlight(*reference, 1);
  const auto searched = FindSchedule(job, reference->time, same);
  const auto planned = PlanCandidate(job, *reference, *searched, kFirst);
  ASSERT_TRUE(planned);
  EXPECT_TRUE(HasBetterGenerated(job, *reference, *searched, more, same));
  const auto better = PlanBetterGenerated(job, *reference, *planned, more, kFirst, same);
  ASSERT_TRUE(better && *better);
  EXPECT_LT((*better)->plan.evaluation.energy_j, planned->plan.evaluation.energy_j);

  EXPECT_FALSE(HasBetterGenerated(job, *reference, *searched, more, more));
  const auto none = PlanBetterGenerated(job, *reference, *planned, more, kFirst, more);
  ASSERT_TRUE(none);
  EXPECT_FALSE(*none);
}

// With one more microbatch, the search finds nothing better. interleaved-zb needs three more, and
// is better.
TEST(Tradeoff, IsNoWorseThanAGeneratedScheduleThatNeedsMuchMoreMemory) {
  using Kind = InstructionKind;
  const profile::Profile profile = *synthetic::SynthesizeProfile(
      {.pp_ranks = kStages,
       .chunks = 2,
       .kinds = {Kind::kForward, Kind::kBackward, Kind::kBackwardInput, Kind::kBackwardWeight}});
  SearchJob job = FinalistsJob(profile);
  job.microbatches = 12;
  const auto generated = schedule::GenerateSchedule(
      {.name = "interleaved-zb", .pp_ranks = kStages, .microbatches = 12, .chunks = 2});
  TradeoffOptions options;
  options.more = {0, 1, 2, 3};
  const auto tradeoff = ComputeTradeoff(job, options);
  ASSERT_TRUE(tradeoff) << tradeoff.error().Message();
  const auto planned = PlanCandidate(job, tradeoff->reference, {.schedule = *generated}, kFirst);
  ASSERT_TRUE(planned) << planned.error().Message();
  EXPECT_LE(tradeoff->rows.back().plan.evaluation.energy_j, planned->plan.evaluation.energy_j);
}

TEST(PlanBestFinalist, KeepsARateOfChanges) {
  const profile::Profile profile = FinalistsProfile();
  SearchJob job = FinalistsJob(profile);
  job.changes.changes_per_s = 3;
  const auto reference = FindReference(job);
  const MemoryLimit limit = MoreInFlight(*reference, 1);
  const auto searched = FindSchedule(job, reference->time, limit);
  const auto best = PlanBestFinalist(job, *reference, *searched, limit, kFirst);
  ASSERT_TRUE(best) << best.error().Message();
  const double most = 3 * ToSeconds(reference->time);
  EXPECT_THAT(best->plan.evaluation.pp_rank_switches, Each(Le(static_cast<int>(most))));
  EXPECT_GT(best->saving, 0);
}

TEST(Tradeoff, NeverSavesLessWithMoreMemoryUnderALimitOfChanges) {
  const profile::Profile profile = FinalistsProfile();
  SearchJob job = FinalistsJob(profile);
  job.changes.most_changes = 2;
  TradeoffOptions options;
  options.more = {0, 1, 3};
  const auto tradeoff = ComputeTradeoff(job, options);
  ASSERT_TRUE(tradeoff) << tradeoff.error().Message();
  double before = tradeoff->fixed.saving;
  for (const TradeoffRow& row : tradeoff->rows) {
    EXPECT_GE(row.saving, before) << row.more;
    EXPECT_THAT(row.plan.evaluation.pp_rank_switches, Each(Le(2)));
    before = row.saving;
  }
  // The relaxation of 1F1B is the best one, but its plan with 2 changes is far from this
  // relaxation.
  EXPECT_THAT(Conclude(*tradeoff), HasSubstr("No order was found that saves more in the memory"));
}

}  // namespace
}  // namespace perseus::schedule_search
