#include "perseus/planning/schedule/in_flight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "perseus/planning/schedule/schedule.h"

namespace perseus::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::int64_t> PeakOf(const ScheduleSpec& spec) {
  return PeakInFlight(*GenerateSchedule(spec));
}

TEST(InFlight, OfGeneratedSchedules) {
  EXPECT_THAT(PeakOf({.name = "gpipe", .pp_ranks = 3, .microbatches = 5}), ElementsAre(5, 5, 5));
  EXPECT_THAT(PeakOf({.name = "1f1b", .pp_ranks = 4, .microbatches = 8}), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(PeakOf({.name = "1f1b", .pp_ranks = 4, .microbatches = 2}), ElementsAre(2, 2, 2, 1));
  // A wgrad frees the activations, so delayed wgrads keep them: no pp_rank above pp_rank 0.
  EXPECT_THAT(PeakOf({.name = "zb-h1", .pp_ranks = 4, .microbatches = 8}), ElementsAre(4, 4, 4, 4));
}

TEST(InFlight, CountsTheSizeOfEachStage) {
  const auto schedule = GenerateSchedule({.name = "1f1b", .pp_ranks = 3, .microbatches = 6});
  EXPECT_THAT(PeakActivations(*schedule, std::vector<std::int64_t>{10, 7, 2}),
              ElementsAre(30, 14, 2));
}

TEST(Warmup, OneForEachLaterRankIsOneForwardOneBackward) {
  for (const int microbatches : {1, 2, 3, 4, 9}) {
    const auto warmup = GenerateWarmupSchedule(microbatches, std::vector{4, 3, 2, 1});
    // With fewer microbatches than pp_ranks, both stop at the number of microbatches.
    const auto known =
        GenerateSchedule({.name = "1f1b", .pp_ranks = 4, .microbatches = microbatches});
    ASSERT_TRUE(warmup) << warmup.error().message;
    EXPECT_EQ(warmup->pp_ranks, known->pp_ranks) << microbatches;
  }
}

TEST(Warmup, HoldsAsManyMicrobatchesAsGiven) {
  const auto schedule = GenerateWarmupSchedule(12, std::vector{9, 7, 7, 1});
  ASSERT_TRUE(schedule) << schedule.error().message;
  EXPECT_FALSE(FindDefect(*schedule).has_value());
  EXPECT_THAT(PeakInFlight(*schedule), ElementsAre(9, 7, 7, 1));
}

TEST(Warmup, RefusesWhatWouldDeadlock) {
  EXPECT_THAT(GenerateWarmupSchedule(12, std::vector{3, 4, 1}).error().message,
              HasSubstr("pp_rank 1: 4 microbatches in flight, but pp_rank 0 has only 3"));
  EXPECT_THAT(GenerateWarmupSchedule(12, std::vector{3, 0}).error().message,
              HasSubstr("pp_rank 1: 0 microbatches in flight"));
  EXPECT_THAT(GenerateWarmupSchedule(0, std::vector{1}).error().message,
              HasSubstr("0 microbatches"));
  EXPECT_THAT(GenerateWarmupSchedule(4, {}).error().message, HasSubstr("without pp_ranks"));
}

}  // namespace
}  // namespace perseus::schedule
