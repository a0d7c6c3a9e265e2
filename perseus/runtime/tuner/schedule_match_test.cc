#include "perseus/runtime/tuner/schedule_match.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace perseus::tuner {
namespace {

using ::testing::HasSubstr;

constexpr protocol::RankId kSecond{0, 1, 0};

schedule::Schedule OneFOneB(int microbatches) {
  return *schedule::GenerateSchedule({"1f1b", 2, microbatches, 1});
}

// A step of the second of two ranks: the forward and then the backward of each microbatch.
protocol::RanStep StepOf(int microbatches) {
  protocol::RanStep step;
  step.step = 12;
  for (int i = 0; i < microbatches; ++i) {
    const Nanoseconds at = 100 * i;
    step.instructions.push_back({InstructionKind::kForward, i, 0, at, 40, 0});
    step.instructions.push_back({InstructionKind::kBackward, i, 0, at + 40, 60, 0});
  }
  return step;
}

TEST(CheckRanSchedule, FindsTheScheduleAmongOtherInstructions) {
  protocol::RanStep step = StepOf(4);
  step.instructions.push_back({InstructionKind::kAllReduce, -1, 0, 400, 10, 0});
  // An instruction on another stream may be recorded late.
  std::swap(step.instructions[2], step.instructions[3]);
  EXPECT_TRUE(CheckRanSchedule(OneFOneB(4), kSecond, step));
}

TEST(CheckRanSchedule, ReportsTheNumberOfMicrobatches) {
  const auto checked = CheckRanSchedule(OneFOneB(6), kSecond, StepOf(4));
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().message,
            "rank dp0-pp1-tp0 ran 4 microbatches in step 12, but the job file has 6 (correct "
            "`microbatches`)");
}

TEST(CheckRanSchedule, NamesTheFirstInstructionThatDiffers) {
  protocol::RanStep step = StepOf(4);
  std::swap(step.instructions[2].microbatch, step.instructions[4].microbatch);
  const auto checked = CheckRanSchedule(OneFOneB(4), kSecond, step);
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message,
              HasSubstr("ran forward of microbatch 2 as number 3 of step 12, but the schedule "
                        "1f1b has forward of microbatch 1"));
  step = StepOf(4);
  step.instructions.pop_back();
  EXPECT_THAT(CheckRanSchedule(OneFOneB(4), kSecond, step).error().message,
              HasSubstr("ran nothing as number 8"));
  EXPECT_THAT(CheckRanSchedule(OneFOneB(4), kSecond, protocol::RanStep()).error().message,
              HasSubstr("without an instruction"));
}

TEST(CheckRunsSchedule, OneDeviatingStepIsNoError) {
  LoggedRank rank;
  rank.steps = {StepOf(2), StepOf(4)};
  EXPECT_TRUE(CheckRunsSchedule(OneFOneB(4), kSecond, rank));
  EXPECT_FALSE(CheckRunsSchedule(OneFOneB(6), kSecond, rank));
}

}  // namespace
}  // namespace perseus::tuner
