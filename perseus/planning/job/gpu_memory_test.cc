#include "perseus/planning/job/gpu_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perseus::job {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kMib = 1 << 20;
constexpr std::int64_t kGib = 1 << 30;

// Two pp_ranks with two chunks each.
profile::Profile MakeProfile() {
  std::vector<profile::ProfileEntry> entries;
  for (int stage = 0; stage < 2; ++stage) {
    for (int chunk = 0; chunk < 2; ++chunk) {
      entries.push_back({stage, chunk, InstructionKind::kForward, {{1410, {}, 1000, 1.0}}});
    }
  }
  return profile::Profile("p.csv", {}, std::move(entries));
}

profile::StageMemory MakeMemory() {
  return {.parts = {{0, 0, 10, 1 * kGib},
                    {0, 1, 11, 2 * kGib},
                    {1, 0, 20, 3 * kGib},
                    {1, 1, 21, 4 * kGib}},
          .source = profile::MemorySource::kModeled};
}

TEST(MemoryOf, WithoutNumbersNoBytesAreKnown) {
  const auto memory = MemoryOf({}, MakeProfile(), std::nullopt);
  ASSERT_TRUE(memory);
  EXPECT_THAT(memory->bytes.activations, IsEmpty());
  EXPECT_EQ(memory->source, "");
}

TEST(MemoryOf, OneNumberCountsForAll) {
  const auto memory = MemoryOf({{700}, 40, {30}}, MakeProfile(), std::nullopt);
  ASSERT_TRUE(memory) << memory.error().Message();
  EXPECT_THAT(memory->bytes.activations,
              ElementsAre(700 * kMib, 700 * kMib, 700 * kMib, 700 * kMib));
  EXPECT_THAT(memory->bytes.available, ElementsAre(10 * kGib, 10 * kGib));
  EXPECT_EQ(memory->source,
            "The bytes of activations are given. Those of weights, gradients and optimizer states "
            "are given.");
}

// Stage s of the schedule is chunk s / 2 on pp_rank s % 2.
TEST(MemoryOf, TheProfileGivesWhatIsNotGiven) {
  const auto memory = MemoryOf({{}, 10, {}}, MakeProfile(), MakeMemory());
  ASSERT_TRUE(memory) << memory.error().Message();
  EXPECT_THAT(memory->bytes.activations, ElementsAre(10, 20, 11, 21));
  EXPECT_THAT(memory->bytes.available, ElementsAre(7 * kGib, 3 * kGib));
  EXPECT_THAT(memory->source, HasSubstr("activations are modeled. Those of weights"));
  const auto given = MemoryOf({{1}, 10, {}}, MakeProfile(), MakeMemory());
  EXPECT_EQ(given->bytes.activations.front(), kMib);
  EXPECT_THAT(given->source, HasSubstr("activations are given. Those of weights, gradients and "
                                       "optimizer states are modeled."));
}

TEST(MemoryOf, SaysThatAnUnknownModelCountsAsNothing) {
  const auto memory = MemoryOf({{1}, 10, {}}, MakeProfile(), std::nullopt);
  EXPECT_THAT(memory->bytes.available, ElementsAre(10 * kGib, 10 * kGib));
  EXPECT_THAT(memory->source, HasSubstr("count as 0 bytes"));
}

// Values of other stages cannot replace a missing value, and a model of 0 bytes would be too
// optimistic.
TEST(MemoryOf, RefusesColumnsWithGaps) {
  profile::StageMemory memory = MakeMemory();
  memory.parts[3].model_bytes.reset();
  EXPECT_THAT(MemoryOf({{}, 10, {}}, MakeProfile(), memory).error().Message(),
              HasSubstr("p.csv: model_bytes of stage 1, chunk 1 is missing, but other stages have "
                        "it (complete the column, or add `model_gib`)"));
  EXPECT_TRUE(MemoryOf({{}, 10, {1}}, MakeProfile(), memory));
  EXPECT_TRUE(MemoryOf({}, MakeProfile(), memory));
  memory.parts[0].activation_bytes.reset();
  EXPECT_THAT(MemoryOf({{}, 10, {1}}, MakeProfile(), memory).error().Message(),
              HasSubstr("activation_bytes of stage 0, chunk 0 is missing"));
  EXPECT_TRUE(MemoryOf({{1}, 10, {1}}, MakeProfile(), memory));
  const auto unused = MemoryOf({}, MakeProfile(), memory);
  ASSERT_TRUE(unused) << unused.error().Message();
  EXPECT_THAT(unused->bytes.activations, IsEmpty());
}

TEST(MemoryOf, RefusesActivationsWithoutBytes) {
  profile::StageMemory memory = MakeMemory();
  memory.parts[0].activation_bytes = 0;
  EXPECT_THAT(MemoryOf({{}, 10, {1}}, MakeProfile(), memory).error().Message(),
              HasSubstr("p.csv: activation_bytes of stage 0 is 0, so any number of microbatches "
                        "would fit"));
  EXPECT_TRUE(MemoryOf({{1}, 10, {1}}, MakeProfile(), memory));
  EXPECT_TRUE(MemoryOf({}, MakeProfile(), memory));
}

TEST(MemoryOf, RefusesWhatCannotBe) {
  const auto message = [](const MemorySettings& settings) {
    return MemoryOf(settings, MakeProfile(), std::nullopt).error().Message();
  };
  EXPECT_THAT(message({{1, 2}, {}, {}}), HasSubstr("`activation_mib` has 2 numbers for 4 stages"));
  EXPECT_THAT(message({{1}, 10, {1, 2, 3}}), HasSubstr("3 numbers for 2 pp_ranks"));
  EXPECT_THAT(message({{}, 10, {}}), HasSubstr("memory of activations is missing"));
  EXPECT_THAT(message({{1}, {}, {3}}), HasSubstr("add `gpu_gib`"));
  EXPECT_THAT(message({{1}, 10, {9, 10}}),
              HasSubstr("the model takes 10 GiB on pp_rank 1, which leaves nothing"));
}

}  // namespace
}  // namespace perseus::job
