#include "perseus/simulation/trainer/rank_work.h"

#include <gmock/gmock.h>

#include <map>
#include <set>
#include <tuple>

#include "perseus/simulation/trainer/training.h"

namespace perseus::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum InstructionKind;

// Every kind on every chunk takes 10 ms at 1000 MHz, 15 ms at 800.
profile::Profile ProfileFor(int stages, int chunks) {
  std::vector<profile::ProfileEntry> entries;
  for (int stage = 0; stage < stages; ++stage) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (const InstructionKind kind :
           {kForward, kBackward, kBackwardInput, kBackwardWeight, kRecompute}) {
        profile::ProfileEntry entry{stage, chunk, kind, {}};
        for (const auto& [mhz, ms] : {std::pair{1000, 10}, std::pair{800, 15}}) {
          profile::Option option;
          option.frequency_mhz = mhz;
          option.time = ms * 1'000'000;
          option.energy_j = 5;
          entry.options.push_back(option);
        }
        entries.push_back(std::move(entry));
      }
    }
  }
  return profile::Profile("profile.csv", {}, std::move(entries));
}

TEST(RankWorkTest, EachTensorThatARankSendsIsReceived) {
  for (const std::string_view name : schedule::ScheduleNames()) {
    const bool has_chunks = name.find("interleaved") == 0 || name.find("-v") != name.npos;
    const int chunks = has_chunks ? 2 : 1;
    const auto schedule = schedule::GenerateSchedule({std::string(name), 4, 8, chunks});
    ASSERT_TRUE(schedule) << name;
    std::multiset<std::pair<int, Tensor>> sent;
    std::multiset<std::pair<int, Tensor>> awaited;
    for (int rank = 0; rank < 4; ++rank) {
      const auto neighbors = NeighborsOf(*schedule, rank);
      const auto work = MakeRankWork(*schedule, rank, ProfileFor(4, chunks), {});
      ASSERT_TRUE(work) << name << ": " << work.error().Message();
      for (const RankInstruction& instruction : *work) {
        if (instruction.input) awaited.insert({rank, *instruction.input});
        if (!instruction.output) continue;
        sent.insert({instruction.output->rank, instruction.output->tensor});
        EXPECT_THAT(neighbors, testing::Contains(instruction.output->rank)) << name;
      }
    }
    EXPECT_EQ(sent, awaited) << name;
    EXPECT_EQ(sent.empty(), false) << name;
  }
}

// Rank 0 of two, two microbatches, 1F1B.  [load F0][load F1] B0 B1 [all-reduce][optimizer]
TEST(RankWorkTest, FixedInstructionsAreAtTheirPlaces) {
  schedule::PipelineModel model;
  model.blocking_power_w = 80;
  model.fixed.load = {1'000'000, -1};
  model.fixed.all_reduce = {2'000'000, 3};
  model.fixed.optimizer = {4'000'000, -1};
  const auto schedule = schedule::GenerateSchedule({"1f1b", 2, 2, 1});
  const auto work = MakeRankWork(*schedule, 0, ProfileFor(2, 1), model);
  ASSERT_TRUE(work);
  std::vector<InstructionKind> kinds;
  for (const RankInstruction& instruction : *work) kinds.push_back(instruction.kind);
  EXPECT_THAT(kinds, ElementsAre(kLoad, kForward, kLoad, kForward, kBackward, kBackward, kAllReduce,
                                 kOptimizer));
  EXPECT_DOUBLE_EQ(work->front().table.At(1).energy_j, 0.08);
  EXPECT_DOUBLE_EQ((*work)[6].table.At(1).energy_j, 3);
  EXPECT_FALSE(work->front().input);
  // Its forwards need no tensor. Its backwards need the gradients of stage 1.
  EXPECT_FALSE((*work)[1].input);
  EXPECT_EQ((*work)[1].output->tensor, (Tensor{false, 1, 0}));
  EXPECT_EQ((*work)[4].input, (Tensor{true, 0, 0}));
  EXPECT_FALSE((*work)[4].output);
}

TEST(RankWorkTest, ChunksOfAVOnOneRankSendNothing) {
  const auto schedule = schedule::GenerateSchedule({"zb-v", 2, 4, 2});
  const auto work = MakeRankWork(*schedule, 1, ProfileFor(2, 2), {});
  ASSERT_TRUE(work);
  for (const RankInstruction& instruction : *work) {
    // Stages 1 and 2 are both on rank 1.
    if (instruction.kind == kForward && instruction.stage == 2) {
      EXPECT_FALSE(instruction.input);
    }
    if (instruction.kind == kForward && instruction.stage == 1) {
      EXPECT_FALSE(instruction.output);
    }
  }
  EXPECT_THAT(NeighborsOf(*schedule, 1), ElementsAre(0));
}

TEST(RankWorkTest, InterleavedPipelineIsARing) {
  const auto schedule = schedule::GenerateSchedule({"interleaved-1f1b", 4, 8, 2});
  EXPECT_THAT(NeighborsOf(*schedule, 0), ElementsAre(1, 3));
  EXPECT_THAT(NeighborsOf(*schedule, 3), ElementsAre(0, 2));
}

TEST(RankWorkTest, MissingInstructionIsNamed) {
  const auto schedule = schedule::GenerateSchedule({"1f1b", 4, 4, 1});
  const auto work = MakeRankWork(*schedule, 3, ProfileFor(3, 1), {});
  ASSERT_FALSE(work);
  EXPECT_THAT(work.error().Message(), HasSubstr("has no forward of stage 3"));
}

TEST(RankWorkTest, ScaledMultipliesTimesAndEnergies) {
  const profile::Profile scaled = Scaled(ProfileFor(1, 1), 0.1);
  const profile::Option& option = scaled.Find(0, 0, kForward)->options.front();
  EXPECT_EQ(option.time, 1'000'000);
  EXPECT_DOUBLE_EQ(option.energy_j, 0.5);
  schedule::FixedInstructions fixed;
  fixed.p2p = 100;
  fixed.load = {200, -1};
  fixed.optimizer = {300, 2};
  const schedule::FixedInstructions smaller = Scaled(fixed, 0.5);
  EXPECT_EQ(smaller.p2p, 50);
  EXPECT_EQ(smaller.load.energy_j, -1);
  EXPECT_EQ(smaller.optimizer.energy_j, 1);
}

TEST(RankSocketsTest, ParsedFromTheirTextTheyAreTheSame) {
  const RankSockets sockets{7, {{0, 8}, {2, 9}}};
  EXPECT_EQ(Format(sockets), "7,0:8,2:9");
  const auto parsed = ParseRankSockets("7,0:8,2:9");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->control, 7);
  EXPECT_EQ(parsed->peers, sockets.peers);
  for (const std::string_view wrong : {"", "x", "7,", "7,0", "7,0:", "7;0:8", "-1", "7,0:8x"}) {
    EXPECT_FALSE(ParseRankSockets(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace perseus::trainer
