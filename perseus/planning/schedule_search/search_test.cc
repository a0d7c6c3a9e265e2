#include "perseus/planning/schedule_search/search.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "perseus/base/index.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/planning/schedule_search/order_bound.h"
#include "perseus/planning/schedule_search/relaxed_energy.h"
#include "perseus/planning/schedule_search/tradeoff.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus::schedule_search {
namespace {

using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Optional;
using Kind = InstructionKind;

struct JobShape {
  int stages = 4;
  int microbatches = 8;
  int chunks = 1;
  double p2p_s = 0;
  bool has_split_backward = false;
  bool has_recompute = false;
  double imbalance = 0.02;
  bool is_folded = false;
};

profile::Profile ProfileOf(const JobShape& shape) {
  synthetic::SyntheticProfileSpec spec;
  spec.pp_ranks = shape.stages;
  spec.chunks = shape.chunks;
  spec.imbalance = shape.imbalance;
  if (shape.is_folded) spec.placement = synthetic::ChunkPlacement::kV;
  if (shape.has_split_backward) {
    spec.kinds = {Kind::kForward, Kind::kBackward, Kind::kBackwardInput, Kind::kBackwardWeight};
  }
  if (shape.has_recompute) spec.kinds = {Kind::kForward, Kind::kBackward, Kind::kRecompute};
  return *synthetic::SynthesizeProfile(spec);
}

SearchJob JobOf(const JobShape& shape, const profile::Profile& profile) {
  SearchJob job{.profile = profile,
                .model = {},
                .execution = {.blocking_power_w = 84},
                .pp_ranks = shape.stages,
                .microbatches = shape.microbatches};
  job.model.blocking_power_w = 84;
  job.model.fixed.p2p = ToNanoseconds(shape.p2p_s);
  if (shape.is_folded) job.placement = Placement::kV;
  return job;
}

const JobShape kShapes[] = {
    {.stages = 1, .microbatches = 3},
    {.stages = 4, .microbatches = 1},
    {.stages = 4, .microbatches = 8},
    {.stages = 4, .microbatches = 8, .p2p_s = 0.002},
    {.stages = 6, .microbatches = 4, .imbalance = 0.2},
    {.stages = 4, .microbatches = 8, .has_split_backward = true},
    {.stages = 3, .microbatches = 6, .has_recompute = true},
    {.stages = 3, .microbatches = 6, .chunks = 2},
    {.stages = 3, .microbatches = 6, .chunks = 2, .has_split_backward = true},
    {.stages = 3, .microbatches = 6, .chunks = 2, .is_folded = true},
    {.stages = 3, .microbatches = 6, .chunks = 2, .has_split_backward = true, .is_folded = true},
};

std::string NameOf(const JobShape& shape) {
  return fmt::format("{} stages, {} microbatches, {} chunks, p2p {} s{}{}", shape.stages,
                     shape.microbatches, shape.chunks, shape.p2p_s,
                     shape.has_split_backward ? ", split backward"
                     : shape.has_recompute    ? ", recompute"
                                              : "",
                     shape.is_folded ? ", in a V" : "");
}

// Every instruction runs once, nothing deadlocks, and the microbatches in flight never exceed the
// limit.
TEST(FindSchedule, GivesAScheduleThatRunsInTheMemory) {
  for (const JobShape& shape : kShapes) {
    const profile::Profile profile = ProfileOf(shape);
    const SearchJob job = JobOf(shape, profile);
    const auto reference = FindReference(job);
    ASSERT_TRUE(reference) << reference.error().Message();
    for (const int more : {0, 1, 3}) {
      SCOPED_TRACE(fmt::format("{}, +{}", NameOf(shape), more));
      const MemoryLimit limit = MoreInFlight(*reference, more);
      const auto found = FindSchedule(job, reference->time, limit);
      ASSERT_TRUE(found) << found.error().Message();
      const auto defect = schedule::FindDefect(found->schedule);
      EXPECT_FALSE(defect.has_value()) << defect->message;
      const auto graph = schedule::BuildInstructionGraph(found->schedule, profile, job.model);
      ASSERT_TRUE(graph) << graph.error().Message();
      EXPECT_EQ(found->in_flight, schedule::PeakInFlight(found->schedule));
      for (std::size_t i = 0; i < limit.of_pp_rank.size(); ++i) {
        EXPECT_LE(found->in_flight[i], limit.of_pp_rank[i]) << "pp_rank " << i;
      }
    }
  }
}

TEST(FindSchedule, IsNoWorseThanAnyGeneratedScheduleThatFits) {
  for (const JobShape& shape : kShapes) {
    SCOPED_TRACE(NameOf(shape));
    const profile::Profile profile = ProfileOf(shape);
    const SearchJob job = JobOf(shape, profile);
    const auto reference = FindReference(job);
    const MemoryLimit limit = MoreInFlight(*reference, 2);
    const RelaxedEnergy energy(job, reference->time, limit);
    const auto found = FindSchedule(job, reference->time, limit);
    ASSERT_TRUE(found);
    for (const std::string_view name : schedule::ScheduleNames()) {
      const auto schedule = schedule::GenerateSchedule({.name = std::string(name),
                                                        .pp_ranks = shape.stages,
                                                        .microbatches = shape.microbatches,
                                                        .chunks = shape.chunks});
      // Schedules in a V place stages differently. So a profile is either for these schedules or
      // for the others.
      if (!schedule || (name == "zb-v" || name == "dualpipe-v") != shape.is_folded) continue;
      const auto judged = energy.Judge(*schedule);
      if (!judged) continue;
      EXPECT_LE(found->relaxed_energy_j, judged->relaxed_energy_j * (1 + 1e-5)) << name;
    }
  }
}

// A V needs no split backwards: the search starts from ZB-V with full backwards. The search also
// changes which stage's forwards come first.
TEST(FindSchedule, FindsABetterOrderOfTheStagesInAV) {
  const JobShape shape{.microbatches = 12, .chunks = 2, .is_folded = true};
  const profile::Profile profile = ProfileOf(shape);
  const SearchJob job = JobOf(shape, profile);
  const auto reference = FindReference(job);
  ASSERT_TRUE(reference) << reference.error().Message();
  EXPECT_EQ(reference->schedule.name, "zb-v");
  const MemoryLimit limit = MoreInFlight(*reference, 0);
  const RelaxedEnergy energy(job, reference->time, limit);
  const auto found = FindSchedule(job, reference->time, limit);
  ASSERT_TRUE(found);
  EXPECT_LE(found->relaxed_energy_j, 0.99 * energy.Judge(reference->schedule)->relaxed_energy_j);
  const auto forwards = [](const schedule::Schedule& schedule) {
    return PathsOf(schedule)[1].forwards;
  };
  EXPECT_NE(forwards(found->schedule), forwards(reference->schedule));
}

TEST(Reference, OfAVNeedsTwoChunks) {
  const profile::Profile profile = ProfileOf({});
  SearchJob job = JobOf({}, profile);
  job.placement = Placement::kV;
  EXPECT_THAT(FindReference(job).error().Message(), HasSubstr("need two chunks on each pp_rank"));
}

// Within the memory of 1F1B, wgrads fill the time in which pp_ranks would wait.
TEST(FindSchedule, SplitsBackwardsInTheSameMemory) {
  const JobShape shape{.has_split_backward = true};
  const profile::Profile profile = ProfileOf(shape);
  const SearchJob job = JobOf(shape, profile);
  const auto reference = FindReference(job);
  const MemoryLimit limit = MoreInFlight(*reference, 0);
  const RelaxedEnergy energy(job, reference->time, limit);
  const auto found = FindSchedule(job, reference->time, limit);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->relaxed_energy_j,
              Le(0.95 * energy.Judge(reference->schedule)->relaxed_energy_j));
}

// A recompute costs time and energy. So only microbatches that otherwise do not fit have one.
TEST(FindSchedule, RecomputesAsLittleAsTheMemoryAllows) {
  const JobShape shape{.stages = 3, .microbatches = 6, .has_recompute = true};
  const profile::Profile profile = ProfileOf(shape);
  const SearchJob job = JobOf(shape, profile);
  const auto reference = FindReference(job);
  const auto recomputes = [](const Candidate& found) {
    std::int64_t count = 0;
    for (const auto& order : found.schedule.pp_ranks) {
      count += std::ranges::count(order, Kind::kRecompute, &schedule::Instruction::kind);
    }
    return count;
  };
  // 1F1B holds 30, 20 and 10 without recomputation, and 12, 11 and 10 with it.
  std::int64_t before = 17;
  double energy_before_j = std::numeric_limits<double>::infinity();
  for (const std::int64_t most : {12, 21, 30}) {
    SCOPED_TRACE(most);
    const MemoryLimit limit{
        .of_pp_rank = {most, 20, 10}, .size_of_stage = {10, 10, 10}, .kept_of_stage = {1, 1, 1}};
    const auto found = FindSchedule(job, reference->time * 7 / 5, limit);
    ASSERT_TRUE(found) << found.error().Message();
    const auto peaks =
        schedule::PeakActivations(found->schedule, limit.size_of_stage, limit.kept_of_stage);
    for (std::size_t i = 0; i < peaks.size(); ++i) EXPECT_LE(peaks[i], limit.of_pp_rank[i]);
    EXPECT_LE(recomputes(*found), before);
    EXPECT_LE(found->relaxed_energy_j, energy_before_j);
    before = recomputes(*found);
    energy_before_j = found->relaxed_energy_j;
  }
  EXPECT_EQ(before, 0);
}

TEST(FindSchedule, MoreMemoryIsNeverWorse) {
  const profile::Profile profile = ProfileOf({});
  const SearchJob job = JobOf({}, profile);
  const auto reference = FindReference(job);
  std::optional<Candidate> before;
  for (const int more : {0, 1, 2, 4}) {
    SearchEffort effort;
    if (before) effort.start = &before->schedule;
    auto found = FindSchedule(job, reference->time, MoreInFlight(*reference, more), effort);
    ASSERT_TRUE(found);
    if (before) {
      EXPECT_LE(found->relaxed_energy_j, before->relaxed_energy_j * (1 + 1e-5));
    }
    before = *std::move(found);
  }
}

TEST(FindSchedule, GivesTheSameScheduleAgain) {
  const profile::Profile profile = ProfileOf({});
  const SearchJob job = JobOf({}, profile);
  const auto reference = FindReference(job);
  const auto first = FindSchedule(job, reference->time, MoreInFlight(*reference, 2));
  const auto second = FindSchedule(job, reference->time, MoreInFlight(*reference, 2));
  EXPECT_EQ(first->schedule.pp_ranks, second->schedule.pp_ranks);
}

// Calls `visit` with every order of as many forwards as backwards in which no backward precedes its
// forward.
void ForEachOrder(int microbatches, std::vector<int>& forwards_before,
                  const std::function<void()>& visit) {
  const int backward = static_cast<int>(forwards_before.size());
  if (backward == microbatches) return visit();
  const int least = std::max(backward + 1, backward == 0 ? 0 : forwards_before.back());
  for (int forwards = least; forwards <= microbatches; ++forwards) {
    forwards_before.push_back(forwards);
    ForEachOrder(microbatches, forwards_before, visit);
    forwards_before.pop_back();
  }
}

// The least relaxed energy of all orders of a small pipeline.
double BestOfAllOrders(const RelaxedEnergy& energy, const schedule::Schedule& shape) {
  const int microbatches = shape.microbatches;
  std::vector<RankPaths> paths = PathsOf(shape);
  double best = std::numeric_limits<double>::infinity();
  const std::function<void(std::size_t)> order_rank = [&](std::size_t pp_rank) {
    if (pp_rank == paths.size()) {
      schedule::Schedule schedule = shape;
      SetOrders(paths, schedule);
      const auto judged = energy.Judge(schedule);
      if (judged) best = std::min(best, judged->relaxed_energy_j);
      return;
    }
    std::vector<int> forwards_before;
    ForEachOrder(microbatches, forwards_before, [&] {
      paths[pp_rank].forwards_before = forwards_before;
      order_rank(pp_rank + 1);
    });
  };
  order_rank(0);
  return best;
}

TEST(FindSchedule, IsTheBestOfAllOrdersOfSmallPipelines) {
  for (const auto& [stages, microbatches] :
       {std::pair(2, 3), std::pair(2, 5), std::pair(3, 3), std::pair(3, 4)}) {
    for (const double p2p_s : {0.0, 0.02}) {
      const JobShape shape{
          .stages = stages, .microbatches = microbatches, .p2p_s = p2p_s, .imbalance = 0.2};
      const profile::Profile profile = ProfileOf(shape);
      const SearchJob job = JobOf(shape, profile);
      const auto reference = FindReference(job);
      for (const int more : {0, 1, 2}) {
        SCOPED_TRACE(fmt::format("{}, +{}", NameOf(shape), more));
        const MemoryLimit limit = MoreInFlight(*reference, more);
        const RelaxedEnergy energy(job, reference->time, limit);
        const double best = BestOfAllOrders(energy, reference->schedule);
        const auto found = FindSchedule(job, reference->time, limit);
        ASSERT_TRUE(found);
        // The search is not exhaustive. But here, its result is as good as the best order, up to
        // the precision of both values.
        EXPECT_NEAR(found->relaxed_energy_j, best, best * 1e-5);
        const auto bound_j = BoundOfAnyOrder(job, reference->time, limit);
        ASSERT_TRUE(bound_j) << bound_j.error().Message();
        ASSERT_TRUE(*bound_j);
        EXPECT_LE(**bound_j, best * (1 + 1e-9));
        // With the memory of the reference, or with two stages, the bound equals the best order.
        // With three stages and more memory, forwards and backwards overlap in the bound.
        const bool is_tight = more == 0 || stages == 2;
        EXPECT_GE(**bound_j, best * (1 - (is_tight ? 1e-5 : 0.005)));
      }
    }
  }
}

TEST(FindSchedule, SaysHowMuchMemoryIsTooLittle) {
  const profile::Profile profile = ProfileOf({.has_split_backward = true});
  const SearchJob job = JobOf({.has_split_backward = true}, profile);
  const auto reference = FindReference(job);
  MemoryLimit limit = MoreInFlight(*reference, 0);
  limit.of_pp_rank.front() = 0;
  const auto found = FindSchedule(job, reference->time, limit);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().kind, ErrorKind::kUnreachable);
  EXPECT_THAT(found.error().Message(),
              HasSubstr("pp_rank 0 may hold 0 microbatches, and the smallest schedule holds 4 "
                        "microbatches there (allow more: 1f1b needs 4 3 2 1 microbatches on "
                        "pp_ranks 0 to 3)"));
}

TEST(FindSchedule, SaysThatAJobIsTooLarge) {
  const JobShape shape{.stages = 2, .microbatches = 60'000};
  const profile::Profile profile = ProfileOf(shape);
  const SearchJob job = JobOf(shape, profile);
  const auto reference = FindReference(job);
  ASSERT_TRUE(reference);
  const auto found = FindSchedule(job, reference->time, MoreInFlight(*reference, 0));
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().kind, ErrorKind::kInput);
  EXPECT_THAT(found.error().Message(), HasSubstr("does not fit the 64 bits of the solver"));
}

TEST(FindSchedule, SaysHowMuchMemoryTheReferenceNeeds) {
  const profile::Profile profile = ProfileOf({});
  const SearchJob job = JobOf({}, profile);
  const auto reference = FindReference(job);
  // One microbatch in flight on each pp_rank is possible, but slower.
  const MemoryLimit limit{
      .of_pp_rank = {1, 1, 1, 1}, .size_of_stage = {1, 1, 1, 1}, .kept_of_stage = {}};
  const auto found = FindSchedule(job, reference->time, limit);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().kind, ErrorKind::kUnreachable);
  EXPECT_THAT(found.error().Message(),
              HasSubstr("1f1b needs 4 3 2 1 microbatches on pp_ranks 0 to "));
  const MemoryLimit bytes{.of_pp_rank = {1 << 30, 1 << 30, 1 << 30, 1 << 30},
                          .size_of_stage = {1 << 30, 1 << 30, 1 << 30, 1 << 30},
                          .kept_of_stage = {},
                          .unit = MemoryLimit::Unit::kBytes};
  EXPECT_THAT(FindSchedule(job, reference->time, bytes).error().Message(),
              HasSubstr("1f1b needs 4.000 3.000 2.000 1.000 GiB of activations on pp_ranks 0 to "));
}

TEST(Reference, IsTheScheduleThatTheProfileCanRun) {
  const profile::Profile plain = ProfileOf({});
  EXPECT_EQ(FindReference(JobOf({}, plain))->schedule.name, "1f1b");
  const JobShape chunked{.stages = 3, .microbatches = 6, .chunks = 2};
  const profile::Profile two_chunks = ProfileOf(chunked);
  EXPECT_EQ(FindReference(JobOf(chunked, two_chunks))->schedule.name, "interleaved-1f1b");

  synthetic::SyntheticProfileSpec spec;
  spec.pp_ranks = 4;
  spec.kinds = {Kind::kForward, Kind::kBackwardInput, Kind::kBackwardWeight};
  const profile::Profile split = *synthetic::SynthesizeProfile(spec);
  EXPECT_EQ(FindReference(JobOf({}, split))->schedule.name, "zb-h1");
  spec.kinds = {Kind::kForward};
  const profile::Profile forwards = *synthetic::SynthesizeProfile(spec);
  EXPECT_THAT(FindReference(JobOf({}, forwards)).error().Message(),
              HasSubstr("stage 0 backward is missing"));
}

TEST(Tradeoff, PlansEveryRowWithinTheTimeAndTheMemory) {
  const profile::Profile profile = ProfileOf({});
  const SearchJob job = JobOf({}, profile);
  const auto tradeoff = ComputeTradeoff(job);
  ASSERT_TRUE(tradeoff) << tradeoff.error().Message();
  ASSERT_THAT(tradeoff->rows.size(), Ge(2U));
  double saving = tradeoff->fixed.saving;
  double most_saving = 0;
  for (const TradeoffRow& row : tradeoff->rows) {
    SCOPED_TRACE(row.more);
    EXPECT_THAT(row.plan.evaluation.time, Le(tradeoff->reference.time));
    EXPECT_THAT(row.saving, Ge(saving));
    saving = row.saving;
    EXPECT_THAT(row.most_saving, Optional(Ge(saving)));
    EXPECT_GE(*row.most_saving, most_saving);
    most_saving = *row.most_saving;
    for (std::size_t i = 0; i < row.candidate.in_flight.size(); ++i) {
      EXPECT_LE(row.candidate.in_flight[i], tradeoff->reference.in_flight[i] + row.more);
    }
  }
  EXPECT_THAT(tradeoff->rows[1].saving, Ge(tradeoff->fixed.saving + 0.005));
  EXPECT_THAT(Conclude(*tradeoff), HasSubstr("more microbatch in flight on pp_rank"));
}

TEST(Tradeoff, SaysThatMemoryIsOfNoUse) {
  const JobShape shape{.stages = 1, .microbatches = 4};
  const profile::Profile profile = ProfileOf(shape);
  const auto tradeoff = ComputeTradeoff(JobOf(shape, profile));
  ASSERT_TRUE(tradeoff) << tradeoff.error().Message();
  EXPECT_THAT(Conclude(*tradeoff), HasSubstr("More memory saves nothing more."));
}

// Within the memory of 1F1B, there is hardly a choice of order.
TEST(BoundOfAnyOrder, IsTightInTheMemoryOfTheReference) {
  const JobShape shape{.stages = 2, .microbatches = 5, .imbalance = 0.2};
  const profile::Profile profile = ProfileOf(shape);
  const SearchJob job = JobOf(shape, profile);
  const auto reference = FindReference(job);
  const MemoryLimit limit = MoreInFlight(*reference, 0);
  const RelaxedEnergy energy(job, reference->time, limit);
  const double best = BestOfAllOrders(energy, reference->schedule);
  const auto bound_j = BoundOfAnyOrder(job, reference->time, limit);
  EXPECT_GE(**bound_j, best * (1 - 0.001));
}

TEST(BoundOfAnyOrder, HoldsWithFixedInstructions) {
  const profile::Profile profile = ProfileOf({});
  SearchJob job = JobOf({}, profile);
  job.model.fixed.load = {.time = 3 * kMillisecond, .energy_j = 1};
  job.model.fixed.all_reduce = {.time = 50 * kMillisecond, .energy_j = 9};
  job.model.fixed.optimizer = {.time = 20 * kMillisecond};
  const auto reference = FindReference(job);
  for (const int more : {0, 2}) {
    const MemoryLimit limit = MoreInFlight(*reference, more);
    const auto found = FindSchedule(job, reference->time, limit);
    const auto bound_j = BoundOfAnyOrder(job, reference->time, limit);
    ASSERT_TRUE(found && bound_j && *bound_j);
    EXPECT_LE(**bound_j, found->relaxed_energy_j * (1 + 1e-9));
    EXPECT_GE(**bound_j, found->relaxed_energy_j * 0.9);
  }
}

TEST(BoundOfAnyOrder, DoesNotApplyToSplitBackwards) {
  const profile::Profile profile = ProfileOf({.has_split_backward = true});
  const SearchJob job = JobOf({.has_split_backward = true}, profile);
  const auto reference = FindReference(job);
  const auto bound_j = BoundOfAnyOrder(job, reference->time, MoreInFlight(*reference, 0));
  ASSERT_TRUE(bound_j);
  EXPECT_EQ(*bound_j, std::nullopt);
}

TEST(RankPaths, KeepEveryGeneratedSchedule) {
  for (const std::string_view name : schedule::ScheduleNames()) {
    SCOPED_TRACE(name);
    const auto generated = schedule::GenerateSchedule(
        {.name = std::string(name), .pp_ranks = 3, .microbatches = 6, .chunks = 1});
    ASSERT_TRUE(generated) << generated.error().Message();
    schedule::Schedule again = *generated;
    SetOrders(PathsOf(*generated), again);
    EXPECT_FALSE(schedule::FindDefect(again).has_value());
    EXPECT_EQ(schedule::PeakInFlight(again), schedule::PeakInFlight(*generated));
    // Wgrads between the same two other instructions may change places. Without split backwards,
    // the order stays the same.
    if (name != "zb-v" && name != "dualpipe-v") {
      EXPECT_EQ(again.pp_ranks, generated->pp_ranks);
    }
  }
}

TEST(RankPaths, FitDelaysForwards) {
  const auto gpipe =
      schedule::GenerateSchedule({.name = "gpipe", .pp_ranks = 1, .microbatches = 4});
  std::vector<RankPaths> paths = PathsOf(*gpipe);
  ASSERT_TRUE(Fit(paths[0], {.of_pp_rank = {2}, .size_of_stage = {1}}, 0, GivesWay::kForwards));
  EXPECT_THAT(paths[0].forwards_before, ElementsAre(2, 3, 4, 5));
  EXPECT_FALSE(Fit(paths[0], {.of_pp_rank = {1}, .size_of_stage = {2}}, 0, GivesWay::kForwards));
}

}  // namespace
}  // namespace perseus::schedule_search
