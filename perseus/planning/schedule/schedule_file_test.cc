// Tests of schedules as CSV: what the reader accepts and refuses, and that writing loses nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perseus/planning/schedule/schedule.h"

namespace perseus::schedule {
namespace {

using ::testing::HasSubstr;
using enum InstructionKind;

// Returns the schedule in canonical form, or the error.
std::string Read(std::string_view text) {
  const Result<Schedule> schedule = ParseSchedule(text, "dump.csv");
  return schedule ? FormatSchedule(*schedule) : schedule.error().Message();
}

TEST(ScheduleFile, ReadsInstructionsInOrder) {
  const Result<Schedule> schedule = ParseSchedule("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "dump.csv");
  ASSERT_TRUE(schedule) << schedule.error().Message();
  EXPECT_EQ(schedule->name, "dump.csv");
  EXPECT_EQ(schedule->microbatches, 2);
  EXPECT_EQ(schedule->pp_rank_of_stage, (std::vector<int>{0, 1}));
  EXPECT_EQ(schedule->pp_ranks[1],
            (std::vector<Instruction>{
                {kForward, 1, 0}, {kBackward, 1, 0}, {kForward, 1, 1}, {kBackward, 1, 1}}));
}

TEST(ScheduleFile, IgnoresSpacesQuotesBubblesAndLineEnds) {
  EXPECT_EQ(Read("\xEF\xBB\xBF 0F0 ,,\"0B0\",\t,\r\n, \" 1F0 \",1B0\r\n\r\n"),
            "0F0,0B0\n1F0,1B0\n");
}

TEST(ScheduleFile, SkipsCommunication) {
  EXPECT_EQ(Read("0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0RESHARD,0REDUCE_GRAD\n"
                 "1RECV_F0,1F0,1B0,1SEND_B0"),
            "0F0,0B0\n1F0,1B0\n");
}

TEST(ScheduleFile, KeepsTheOrderOfOverlappedInstructions) {
  EXPECT_EQ(Read("0F0,(0F1;0B0)OVERLAP_F_B,0B1"), "0F0,0F1,0B0,0B1\n");
  EXPECT_EQ(Read("0F0,\"( 0F1 ; 0B0 )OVERLAP_F_B\",0B1"), "0F0,0F1,0B0,0B1\n");
}

TEST(ScheduleFile, AnOldBWithAWOfTheSameMicrobatchIsADgrad) {
  EXPECT_EQ(Read("0F0,0B0,0W0,0F1,0B1"), "0F0,0I0,0W0,0F1,0B1\n");
  EXPECT_EQ(Read("0F0,0B0,0W0,0F1,0BW1"), "0F0,0I0,0W0,0F1,0B1\n");
}

TEST(ScheduleFile, ChunksCountTheStagesOfAPpRank) {
  const Result<Schedule> schedule = ParseSchedule("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", "dump.csv");
  ASSERT_TRUE(schedule) << schedule.error().Message();
  EXPECT_EQ(schedule->pp_rank_of_stage, (std::vector<int>{0, 1, 1, 0}));
  EXPECT_EQ(schedule->chunk_of_stage, (std::vector<int>{0, 0, 1, 1}));
}

struct ScheduleRefusal {
  std::string_view name;
  std::string_view text;
  std::string_view message;
};

class ScheduleFileRefusal : public ::testing::TestWithParam<ScheduleRefusal> {};

TEST_P(ScheduleFileRefusal, SaysWhereAndWhatToDo) {
  EXPECT_THAT(Read(GetParam().text), HasSubstr(std::string(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    All, ScheduleFileRefusal,
    ::testing::Values(
        ScheduleRefusal{"Nothing", "\r\n",
                        "dump.csv: the file is empty (expected a row for each pp_rank"},
        ScheduleRefusal{"Word", "0F0,forward",
                        "dump.csv: row 1: cell \"forward\" is not an instruction (expected"},
        ScheduleRefusal{"Letter", "0F0,0Q0", "dump.csv: row 1: cell \"0Q0\" is not an instruction"},
        ScheduleRefusal{"NoMicrobatch", "0F", "cell \"0F\" is not an instruction"},
        ScheduleRefusal{"TrailingText", "0F0x", "cell \"0F0x\" is not an instruction"},
        ScheduleRefusal{"Negative", "-1F0", "cell \"-1F0\" is not an instruction"},
        ScheduleRefusal{"HugeNumber", "0F99999999999",
                        "cell \"0F99999999999\" is not an instruction"},
        ScheduleRefusal{"LargestNumber", "0F2147483647", "microbatch 2147483647 is too large"},
        ScheduleRefusal{"OpenOverlap", "(0F0;0B0", "is not an overlap of instructions"},
        ScheduleRefusal{"OtherOverlap", "(0F0;0B0)OVERLAP", "is not an overlap of instructions"},
        ScheduleRefusal{"OpenBatch", "0F0,(0SEND_F0;1RECV_B0", "a batch of communications"},
        ScheduleRefusal{"EmptyBatch", "0F0,()BATCH_P2P", "a batch of communications"},
        ScheduleRefusal{"ComputationInBatch", "(0F0;0SEND_F0)BATCH_P2P",
                        "row 1: cell \"(0F0;0SEND_F0)BATCH_P2P\" has a computation in a batch"},
        ScheduleRefusal{"EmptyRow", "0F0,0B0\n,,\n1F0,1B0",
                        "dump.csv: row 2: pp_rank 1 has no instructions"},
        ScheduleRefusal{"TwoRanks", "0F0,0B0\n0F1,0B1",
                        "dump.csv: row 2: 0F1 is here, but stage 0 is on pp_rank 0 in row 1"},
        ScheduleRefusal{
            "Transposed", "0F0,\n0F1,1F0\n0B0,1B0\n0B1,1F1\n,1B1",
            "dump.csv: row 2: 0F1 is here, but stage 0 is in row 1: the columns are the "
            "pp_ranks (transpose the file"},
        ScheduleRefusal{"Bidirectional", "0F0,1F1,0B0,1B1\n1F0,0F1,1B0,0B1",
                        "(keep each stage on one pp_rank. For a schedule with copies of a stage, "
                        "such as DualPipe, write a `graph`)"},
        ScheduleRefusal{"StageGap", "0F0,0B0\n2F0,2B0",
                        "dump.csv: row 2: stage 2 is here, but stage 1 is in no row"},
        ScheduleRefusal{"MicrobatchGap", "0F0,0B0,0F2,0B2",
                        "dump.csv: row 1: forward of microbatch 1 (stage 0) is missing"},
        ScheduleRefusal{"StageLacksMicrobatch", "0F0,0F1,0B0,0B1\n1F0,1B0",
                        "dump.csv: row 2: forward of microbatch 1 (stage 1) is missing"},
        ScheduleRefusal{"SparseNumbers", "0F2000000000,0B2000000000",
                        "dump.csv: row 1: forward of microbatch 0 (stage 0) is missing"},
        ScheduleRefusal{"NoBackward", "0F0",
                        "row 1: backward of microbatch 0 (stage 0) is missing"},
        ScheduleRefusal{"NoForward", "0B0", "row 1: forward of microbatch 0 (stage 0) is missing"},
        ScheduleRefusal{"NoDgrad", "0F0,0W0",
                        "backward_input of microbatch 0 (stage 0) is missing"},
        ScheduleRefusal{"NoWgrad", "0F0,0I0",
                        "backward_weight of microbatch 0 (stage 0) is missing"},
        ScheduleRefusal{"Twice", "0F0,0B0,0F0", "forward of microbatch 0 (stage 0) appears twice"},
        ScheduleRefusal{"FullAndDgrad", "0F0,0B0,0I0",
                        "appears together with its own dgrad or wgrad"},
        ScheduleRefusal{"FullAndWgrad", "0F0,0BW0,0W0",
                        "appears together with its own dgrad or wgrad"}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

TEST(ScheduleFile, SkipsBatchesOfCommunications) {
  const auto batched = ParseSchedule(
      "0F0,(0SEND_F0;2RECV_F0)BATCH_P2P,2F0,\"(2SEND_F0;2RECV_B0)BATCH_P2P\",2B0,"
      "( 2SEND_B0 ; 0RECV_B0 )BATCH_P2P,0B0,0REDUCE_GRAD\n"
      "1RECV_F0,1F0,(1SEND_F0;3RECV_F0)BATCH_P2P,3F0,3B0,3SEND_B0,1RECV_B0,1B0,1SEND_B0\n",
      "dump");
  ASSERT_TRUE(batched) << batched.error().Message();
  EXPECT_EQ(FormatSchedule(*batched), "0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n");
}

TEST(ScheduleFile, ReadsTheTableThatTorchPrints) {
  constexpr std::string_view kRead = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
  EXPECT_EQ(Read("         Rank 0  Rank 1 \n"
                 "Step 00: 0F0            \n"
                 "Step 01: 0F1     1F0    \n"
                 "Step 02:         1B0    \n"
                 "Step 03: 0B0     1F1     <-- ERROR HERE\n"
                 "Step 04:         1B1\n"
                 "Step 05: 0B1\n\n"),
            kRead);
  EXPECT_EQ(Read("Rank 0 Rank 1\nStep 0: 0F0 1F0\nStep 1: 0B0 1B0\n"), "0F0,0B0\n1F0,1B0\n");
  EXPECT_EQ(Read("Rank 0 Rank 1\nStep 0: 0F0\nStep 1: 0B0 1F0\n"),
            "dump.csv: \"Step 0\": the cells are not below the names of the pp_ranks (copy the "
            "table with all its spaces)");
}

TEST(ScheduleFile, ReadsTheSameScheduleThatItWrote) {
  for (std::string_view name : ScheduleNames()) {
    const Result<Schedule> schedule = GenerateSchedule({std::string(name), 4, 8});
    ASSERT_TRUE(schedule) << schedule.error().Message();
    const Result<Schedule> read = ParseSchedule(FormatSchedule(*schedule), name);
    ASSERT_TRUE(read) << read.error().Message();
    EXPECT_EQ(read->pp_ranks, schedule->pp_ranks);
    EXPECT_EQ(read->pp_rank_of_stage, schedule->pp_rank_of_stage);
    EXPECT_EQ(read->chunk_of_stage, schedule->chunk_of_stage);
    EXPECT_EQ(read->microbatches, schedule->microbatches);
  }
}

}  // namespace
}  // namespace perseus::schedule
