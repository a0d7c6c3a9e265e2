#include "perseus/planning/schedule/schedule.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>
#include <vector>

#include "perseus/base/file.h"

namespace perseus::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A schedule drawn as in the dumps of PyTorch. Spaces align instructions that run at the same time,
// so they show the bubbles.
std::string Drawn(std::string_view drawing) {
  std::string csv;
  std::istringstream rows{std::string(drawing)};
  for (std::string row; std::getline(rows, row);) {
    std::istringstream words(row);
    const std::vector<std::string> cells{std::istream_iterator<std::string>(words), {}};
    if (!cells.empty()) csv += fmt::format("{}\n", fmt::join(cells, ","));
  }
  return csv;
}

std::string Generated(const ScheduleSpec& spec) {
  const Result<Schedule> schedule = GenerateSchedule(spec);
  return schedule ? FormatSchedule(*schedule) : schedule.error().Message();
}

TEST(Schedule, Gpipe) {
  EXPECT_EQ(Generated({.name = "gpipe", .pp_ranks = 3, .microbatches = 4}), Drawn(R"(
    0F0 0F1 0F2 0F3                         0B0 0B1 0B2 0B3
        1F0 1F1 1F2 1F3                 1B0 1B1 1B2 1B3
            2F0 2F1 2F2 2F3 2B0 2B1 2B2 2B3
  )"));
}

TEST(Schedule, OneForwardOneBackward) {
  EXPECT_EQ(Generated({.name = "1f1b", .pp_ranks = 3, .microbatches = 4}), Drawn(R"(
    0F0 0F1 0F2         0B0 0F3 0B1     0B2     0B3
        1F0 1F1     1B0 1F2 1B1 1F3 1B2     1B3
            2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3
  )"));
}

TEST(Schedule, OneForwardOneBackwardWithFewMicrobatches) {
  EXPECT_EQ(Generated({.name = "1f1b", .pp_ranks = 4, .microbatches = 2}), Drawn(R"(
    0F0 0F1                     0B0 0B1
        1F0 1F1             1B0 1B1
            2F0 2F1     2B0 2B1
                3F0 3B0 3F1 3B1
  )"));
}

// Each recompute runs while the pp_rank would wait for the gradient.
TEST(Schedule, EarlyRecompute) {
  EXPECT_EQ(Generated({.name = "early-recompute-1f1b", .pp_ranks = 2, .microbatches = 3}), Drawn(R"(
    0F0 0F1 0R0         0B0 0F2 0R1     0B1 0R2     0B2
        1F0 1R0     1B0 1F1 1R1     1B1 1F2 1R2 1B2
  )"));
}

TEST(Schedule, InterleavedOneForwardOneBackward) {
  EXPECT_EQ(Generated({.name = "interleaved-1f1b", .pp_ranks = 2, .microbatches = 4, .chunks = 2}),
            Drawn(R"(
    0F0 0F1 2F0 2F1     0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1     2B2     2B3     0B2     0B3
        1F0 1F1     3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3     1B2     1B3
  )"));
}

// The r wgrads that pp_rank r delays fill its drain phase.
TEST(Schedule, ZbH1) {
  EXPECT_EQ(Generated({.name = "zb-h1", .pp_ranks = 3, .microbatches = 4}), Drawn(R"(
    0F0 0F1 0F2         0I0 0W0 0F3 0I1 0W1     0I2 0W2 0I3 0W3
        1F0 1F1     1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3
            2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3
  )"));
}

TEST(Schedule, InterleavedZb) {
  EXPECT_EQ(Generated({.name = "interleaved-zb", .pp_ranks = 2, .microbatches = 2, .chunks = 2}),
            Drawn(R"(
    0F0 0F1 2F0     2F1 2I0 2W0 2I1 2W1 0I0 0W0     0I1 0W1
        1F0 1F1 3F0 3I0 3F1 3I1 3W0 1I0 3W1 1I1 1W0 1W1
  )"));
}

//   pp_rank 0:  stage 0  stage 3
//   pp_rank 1:  stage 1  stage 2
TEST(Schedule, ZbV) {
  EXPECT_EQ(Generated({.name = "zb-v", .pp_ranks = 2, .microbatches = 3}), Drawn(R"(
    0F0 0F1 0F2     3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1     0I2 0W2
        1F0 2F0 1F1 2F1         2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2
  )"));
}

//   pp_rank 0:  stage 0  stage 3
//   pp_rank 1:  stage 1  stage 2
TEST(Schedule, DualPipeV) {
  EXPECT_EQ(Generated({.name = "dualpipe-v", .pp_ranks = 2, .microbatches = 4}), Drawn(R"(
    0F0 0F1 0F2     3F0 3I0 3W0 3F1 0F3 3B1     3F2 0B0 3B2 3F3 0B1     3B3 0I2 0W2 0I3 0W3
        1F0 2F0 1F1 2F1 1F2         2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3
  )"));
}

TEST(Schedule, PlacesStagesInALoopOrInAV) {
  const Result<Schedule> looped =
      GenerateSchedule({.name = "interleaved-zb", .pp_ranks = 2, .microbatches = 2, .chunks = 3});
  ASSERT_TRUE(looped);
  EXPECT_EQ(looped->pp_rank_of_stage, (std::vector<int>{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(looped->chunk_of_stage, (std::vector<int>{0, 0, 1, 1, 2, 2}));

  const Result<Schedule> folded =
      GenerateSchedule({.name = "zb-v", .pp_ranks = 3, .microbatches = 1, .chunks = 2});
  ASSERT_TRUE(folded);
  EXPECT_EQ(folded->pp_rank_of_stage, (std::vector<int>{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(folded->chunk_of_stage, (std::vector<int>{0, 0, 0, 1, 1, 1}));
}

TEST(Schedule, RefusesWrongSizesAndSaysWhichAreAllowed) {
  EXPECT_EQ(Generated({.name = "1f1bb", .pp_ranks = 2, .microbatches = 2}),
            "unknown schedule \"1f1bb\" (did you mean \"1f1b\"?)");
  EXPECT_THAT(Generated({.name = "bfs", .pp_ranks = 2, .microbatches = 2}),
              HasSubstr("(known: gpipe, 1f1b, interleaved-1f1b,"));
  EXPECT_EQ(Generated({.name = "1f1b", .pp_ranks = 0, .microbatches = 2}),
            "schedule 1f1b: 0 pp_ranks (expected 1 to 100000)");
  EXPECT_EQ(Generated({.name = "gpipe", .pp_ranks = 2, .microbatches = -1}),
            "schedule gpipe: -1 microbatches (expected 1 to 1000000)");
  EXPECT_THAT(Generated({.name = "zb-h1", .pp_ranks = 2, .microbatches = 2, .chunks = 2}),
              HasSubstr("this schedule has one stage on each pp_rank"));
  EXPECT_THAT(
      Generated({.name = "interleaved-1f1b", .pp_ranks = 4, .microbatches = 9, .chunks = 2}),
      HasSubstr("(use 8 or 10 microbatches)"));
  EXPECT_THAT(Generated({.name = "zb-v", .pp_ranks = 2, .microbatches = 2, .chunks = 3}),
              HasSubstr("(use 2)"));
  EXPECT_THAT(Generated({.name = "dualpipe-v", .pp_ranks = 4, .microbatches = 7}),
              HasSubstr("(use at least 8"));
  EXPECT_THAT(Generated({.name = "1f1b", .pp_ranks = 10'000, .microbatches = 100'000}),
              HasSubstr("(use fewer)"));
}

// The instructions whose results an instruction needs.
std::vector<Instruction> Needs(const Schedule& schedule, const std::set<std::pair<int, int>>& split,
                               const Instruction& instruction) {
  using enum InstructionKind;
  const auto [kind, stage, microbatch] = instruction;
  const bool last = stage + 1 == schedule.stages();
  if (kind == kForward) {
    return stage == 0 ? std::vector<Instruction>{}
                      : std::vector<Instruction>{{kForward, stage - 1, microbatch}};
  }
  if (kind == kBackwardWeight) return {{kBackwardInput, stage, microbatch}};
  if (kind == kRecompute || last) return {{kForward, stage, microbatch}};
  return {{kForward, stage, microbatch},
          {split.contains({stage + 1, microbatch}) ? kBackwardInput : kBackward, stage + 1,
           microbatch}};
}

// Runs instructions until none is ready. Returns how many ran.
std::size_t CountRunnable(const Schedule& schedule) {
  auto key = [](const Instruction& instruction) {
    return std::tuple(instruction.kind, instruction.stage, instruction.microbatch);
  };
  std::set<std::pair<int, int>> split;
  for (const std::vector<Instruction>& rank : schedule.pp_ranks) {
    for (const Instruction& instruction : rank) {
      if (instruction.kind == InstructionKind::kBackwardInput) {
        split.insert({instruction.stage, instruction.microbatch});
      }
    }
  }
  std::set<std::tuple<InstructionKind, int, int>> done;
  std::vector<std::size_t> next(schedule.pp_ranks.size());
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t rank = 0; rank < next.size(); ++rank) {
      while (next[rank] < schedule.pp_ranks[rank].size()) {
        const Instruction& instruction = schedule.pp_ranks[rank][next[rank]];
        const std::vector<Instruction> needs = Needs(schedule, split, instruction);
        if (!std::all_of(needs.begin(), needs.end(),
                         [&](const Instruction& need) { return done.contains(key(need)); })) {
          break;
        }
        done.insert(key(instruction));
        ++next[rank];
        progress = true;
      }
    }
  }
  return done.size();
}

std::size_t CountInstructions(const Schedule& schedule) {
  std::size_t instructions = 0;
  for (const std::vector<Instruction>& rank : schedule.pp_ranks) instructions += rank.size();
  return instructions;
}

// The maximum number of microbatches in flight: after their forward and before their instruction of
// kind `end`.
int MostInFlight(const std::vector<Instruction>& rank, InstructionKind end) {
  int most = 0;
  int in_flight = 0;
  for (const Instruction& instruction : rank) {
    if (instruction.kind == InstructionKind::kForward) most = std::max(most, ++in_flight);
    if (instruction.kind == end) --in_flight;
  }
  return most;
}

// Calls `check` for every schedule and every small size. Irregular cases occur at small sizes.
template <typename Check>
void ForEverySchedule(int most_ranks, int most_microbatches, Check check) {
  for (std::string_view name : ScheduleNames()) {
    for (int ranks = 1; ranks <= most_ranks; ++ranks) {
      for (int microbatches = 1; microbatches <= most_microbatches; ++microbatches) {
        for (int chunks = 1; chunks <= 3; ++chunks) {
          const Result<Schedule> schedule =
              GenerateSchedule({std::string(name), ranks, microbatches, chunks});
          if (!schedule) continue;
          SCOPED_TRACE(fmt::format("{} with {} ranks, {} microbatches, {} chunks", name, ranks,
                                   microbatches, chunks));
          check(*schedule);
        }
      }
    }
  }
}

TEST(Schedule, EachComputesEverythingOnceAndNeverDeadlocks) {
  int schedules = 0;
  ForEverySchedule(6, 14, [&](const Schedule& schedule) {
    const std::optional<ScheduleDefect> defect = FindDefect(schedule);
    EXPECT_FALSE(defect) << defect->message;
    EXPECT_EQ(CountRunnable(schedule), CountInstructions(schedule));
    ++schedules;
  });
  EXPECT_GT(schedules, 800);
}

TEST(Schedule, OneForwardOneBackwardKeepsFewMicrobatchesInFlight) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int microbatches = 1; microbatches <= 20; ++microbatches) {
      const auto schedule = GenerateSchedule({"1f1b", ranks, microbatches});
      const auto zero_bubble = GenerateSchedule({"zb-h1", ranks, microbatches});
      ASSERT_TRUE(schedule && zero_bubble);
      for (int rank = 0; rank < ranks; ++rank) {
        const auto at = static_cast<std::size_t>(rank);
        EXPECT_EQ(MostInFlight(schedule->pp_ranks[at], InstructionKind::kBackward),
                  std::min(ranks - rank, microbatches));
        // With ZB-H1, no pp_rank needs more memory than pp_rank 0 of 1F1B.
        EXPECT_EQ(MostInFlight(zero_bubble->pp_ranks[at], InstructionKind::kBackwardWeight),
                  std::min(ranks, microbatches));
      }
    }
  }
}

TEST(Schedule, ZbH1WithoutDelayedWgradsIs1F1B) {
  const auto one_rank = GenerateSchedule({"zb-h1", 1, 2});
  ASSERT_TRUE(one_rank);
  EXPECT_EQ(FormatSchedule(*one_rank), "0F0,0I0,0W0,0F1,0I1,0W1\n");
}

// Compares with the dumps that PyTorch published. They are not part of this repository.
class PublishedSchedule : public ::testing::Test {
 protected:
  void Compare(const std::string& file, const ScheduleSpec& spec) {
    namespace fs = std::filesystem;
    const char* shared = std::getenv("PERSEUS_SHARED_DIR");
    const fs::path path =
        (shared ? fs::path(shared) : fs::path(PERSEUS_SOURCE_DIR) / ".." / "shared") / "schedules" /
        file;
    if (!fs::exists(path)) {
      GTEST_SKIP() << path << " is absent (set PERSEUS_SHARED_DIR to compare)";
    }
    const Result<std::string> text = ReadFile(path);
    ASSERT_TRUE(text) << text.error().Message();
    const Result<Schedule> published = ParseSchedule(*text, file);
    ASSERT_TRUE(published) << published.error().Message();
    const Result<Schedule> generated = GenerateSchedule(spec);
    ASSERT_TRUE(generated) << generated.error().Message();
    EXPECT_EQ(FormatSchedule(*published), FormatSchedule(*generated));
    EXPECT_EQ(published->pp_rank_of_stage, generated->pp_rank_of_stage);
    EXPECT_EQ(published->chunk_of_stage, generated->chunk_of_stage);
  }
};

TEST_F(PublishedSchedule, InterleavedOneForwardOneBackwardWithCommunication) {
  Compare("interleaved1f1b_2ranks_4stages_4mb_comms.csv", {"interleaved-1f1b", 2, 4, 2});
}

TEST_F(PublishedSchedule, InterleavedZbInOldLetters) {
  Compare("zb1p_2ranks_4stages_8mb_compute_old_letters.csv", {"interleaved-zb", 2, 8, 2});
}

std::vector<std::int64_t> PeakOf(const ScheduleSpec& spec) {
  return PeakInFlight(*GenerateSchedule(spec));
}

TEST(InFlight, OfGeneratedSchedules) {
  EXPECT_THAT(PeakOf({.name = "gpipe", .pp_ranks = 3, .microbatches = 5}), ElementsAre(5, 5, 5));
  EXPECT_THAT(PeakOf({.name = "1f1b", .pp_ranks = 4, .microbatches = 8}), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(PeakOf({.name = "1f1b", .pp_ranks = 4, .microbatches = 2}), ElementsAre(2, 2, 2, 1));
  // A wgrad frees the activations, so delayed wgrads keep them longer. But no pp_rank needs more
  // than pp_rank 0.
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
    ASSERT_TRUE(warmup) << warmup.error().Message();
    EXPECT_EQ(warmup->pp_ranks, known->pp_ranks) << microbatches;
  }
}

TEST(Warmup, HoldsAsManyMicrobatchesAsGiven) {
  const auto schedule = GenerateWarmupSchedule(12, std::vector{9, 7, 7, 1});
  ASSERT_TRUE(schedule) << schedule.error().Message();
  EXPECT_FALSE(FindDefect(*schedule).has_value());
  EXPECT_THAT(PeakInFlight(*schedule), ElementsAre(9, 7, 7, 1));
}

TEST(Warmup, RefusesWhatWouldDeadlock) {
  EXPECT_THAT(GenerateWarmupSchedule(12, std::vector{3, 4, 1}).error().Message(),
              HasSubstr("pp_rank 1: 4 microbatches in flight, but pp_rank 0 has only 3"));
  EXPECT_THAT(GenerateWarmupSchedule(12, std::vector{3, 0}).error().Message(),
              HasSubstr("pp_rank 1: 0 microbatches in flight"));
  EXPECT_THAT(GenerateWarmupSchedule(0, std::vector{1}).error().Message(),
              HasSubstr("0 microbatches"));
  EXPECT_THAT(GenerateWarmupSchedule(4, {}).error().Message(), HasSubstr("without pp_ranks"));
}

TEST(DescribeOrder, NamesTheWarmupOfEachRank) {
  EXPECT_EQ(DescribeOrder(*GenerateWarmupSchedule(12, std::vector{5, 4, 3, 1})),
            "pp_rank 0: 5 forwards before its first backward; 5 F, 7 (B F), 5 B\n"
            "pp_rank 1: 4 forwards before its first backward; 4 F, 8 (B F), 4 B\n"
            "pp_rank 2: 3 forwards before its first backward; 3 F, 9 (B F), 3 B\n"
            "pp_rank 3: 1 forward before its first backward; 12 (F B)\n");
}

TEST(DescribeOrder, SeveralChunksNameTheirStages) {
  const std::string text = DescribeOrder(*GenerateSchedule(
      {.name = "interleaved-1f1b", .pp_ranks = 2, .microbatches = 4, .chunks = 2}));
  EXPECT_THAT(text, HasSubstr("pp_rank 0: 5 forwards before its first backward; 2 0F, 2 2F, "));
}

TEST(DescribeOrder, OtherOrdersOfMicrobatchesNameThem) {
  const auto schedule = ParseSchedule("0F1,0F0,0B0,0B1\n", "s.csv");
  ASSERT_TRUE(schedule) << schedule.error().Message();
  EXPECT_EQ(DescribeOrder(*schedule),
            "pp_rank 0: 2 forwards before its first backward; F1, F0, B0, B1\n");
}

}  // namespace
}  // namespace perseus::schedule
