#include "perseus/runtime/tuner/ran_schedule.h"

#include <gmock/gmock.h>

#include <cstddef>
#include <fstream>
#include <utility>

#include "tests/support/results.h"
#include "tests/support/temporary_directory.h"

namespace perseus::tuner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr protocol::RankId kSecondRank{0, 1, 0};

schedule::Schedule OneFOneB(int microbatches) {
  return *schedule::GenerateSchedule({"1f1b", 2, microbatches, 1});
}

// Returns a step of the second of two ranks. It has the forward and then the backward of each
// microbatch.
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

TEST(WaitsBeforeOptimizer, LeavesOutTheWaitsOfTheOptimizer) {
  protocol::RanStep step = StepOf(2);
  EXPECT_FALSE(WaitsBeforeOptimizer(step));
  step.instructions.push_back({InstructionKind::kOptimizerStep, 0, 0, 250, 50, 0});
  step.waits = {{270, 20}};
  EXPECT_FALSE(WaitsBeforeOptimizer(step));
  step.waits.push_back({150, 10});
  EXPECT_TRUE(WaitsBeforeOptimizer(step));
  step.instructions.pop_back();
  step.waits.pop_back();
  EXPECT_TRUE(WaitsBeforeOptimizer(step));
}

TEST(CheckRanSchedule, FindsTheScheduleAmongOtherInstructions) {
  protocol::RanStep step = StepOf(4);
  step.instructions.push_back({InstructionKind::kAllReduce, -1, 0, 400, 10, 0});
  // An instruction on another stream may be recorded late.
  std::swap(step.instructions[2], step.instructions[3]);
  EXPECT_TRUE(CheckRanSchedule(OneFOneB(4), kSecondRank, step));
}

TEST(CheckRanSchedule, ReportsTheNumberOfMicrobatches) {
  EXPECT_THAT(
      CheckRanSchedule(OneFOneB(6), kSecondRank, StepOf(4)),
      FailsWith("rank dp0-pp1-tp0 ran 4 microbatches in step 12, but the job file has 6 (correct "
                "`microbatches`)"));
}

TEST(CheckRanSchedule, NamesTheFirstInstructionThatDiffers) {
  protocol::RanStep step = StepOf(4);
  std::swap(step.instructions[2].microbatch, step.instructions[4].microbatch);
  EXPECT_THAT(
      CheckRanSchedule(OneFOneB(4), kSecondRank, step),
      FailsWith(HasSubstr("ran forward of microbatch 2 as number 3 of step 12, but the schedule "
                          "1f1b has forward of microbatch 1")));
  step = StepOf(4);
  step.instructions.pop_back();
  EXPECT_THAT(CheckRanSchedule(OneFOneB(4), kSecondRank, step).error().Message(),
              HasSubstr("ran nothing as number 8"));
  EXPECT_THAT(CheckRanSchedule(OneFOneB(4), kSecondRank, protocol::RanStep()).error().Message(),
              HasSubstr("without an instruction"));
}

TEST(CheckRunsSchedule, OneDeviatingStepIsNoError) {
  LoggedRank rank;
  rank.steps = {StepOf(2), StepOf(4)};
  EXPECT_TRUE(CheckRunsSchedule(OneFOneB(4), kSecondRank, rank));
  EXPECT_FALSE(CheckRunsSchedule(OneFOneB(6), kSecondRank, rank));
}

schedule::Schedule Generated(const std::string& name, int microbatches, int chunks = 1) {
  return *schedule::GenerateSchedule({name, 2, microbatches, chunks});
}

// Logs of jobs with two pp_ranks.
class RanScheduleTest : public testing::Test {
 protected:
  RanScheduleTest() { std::filesystem::create_directory(directory_ / "ranks"); }

  void Begin(const protocol::RankId& name, std::vector<int> stages = {}, int pp_ranks = 2,
             int pid = 1) const {
    protocol::RankHeader header;
    header.name = name;
    header.pid = pid;
    header.stages = std::move(stages);
    header.pp_ranks = pp_ranks;
    Append(name, header);
  }
  void Append(const protocol::RankId& name, const protocol::RankRecord& record) const {
    std::ofstream(protocol::RankLogPath(directory_, name), std::ios::app)
        << protocol::FormatRecord(record);
  }
  // Returns a step of one rank in the order of the schedule.
  static protocol::RanStep StepOf(const schedule::Schedule& schedule, int pp_rank,
                                  std::int64_t number) {
    protocol::RanStep step;
    step.step = number;
    step.begin = number * kSecond;
    step.end = step.begin + kSecond;
    for (const schedule::Instruction& one : schedule.pp_ranks[static_cast<std::size_t>(pp_rank)]) {
      const Nanoseconds begin = 100 * static_cast<Nanoseconds>(step.instructions.size());
      const int chunk = schedule.chunk_of_stage[static_cast<std::size_t>(one.stage)];
      step.instructions.push_back({one.kind, one.microbatch, chunk, begin, 90, 0});
    }
    return step;
  }
  // Appends steps of both ranks of a pipeline.
  void Run(const schedule::Schedule& schedule, std::int64_t first, std::int64_t last,
           int dp_rank = 0, int tp_rank = 0) const {
    for (std::int64_t step = first; step <= last; ++step) {
      for (int rank = 0; rank < 2; ++rank) {
        Append({dp_rank, rank, tp_rank}, StepOf(schedule, rank, step));
      }
    }
  }
  Result<RanSchedule> Find() const {
    auto logs = JobLogs::Open(directory_.path(), JobLogs::Job::kIsOver);
    EXPECT_TRUE(logs) << logs.error().Message();
    return FindRanSchedule(*logs, LoggedRanks(*logs), "run");
  }
  void ExpectError(const std::string& about) const {
    EXPECT_THAT(Find(), FailsWith(HasSubstr(about)));
  }

  TemporaryDirectory directory_;
};

TEST_F(RanScheduleTest, IsWhatAllRanksRan) {
  for (const char* const name : {"gpipe", "1f1b", "zb-h1", "early-recompute-1f1b"}) {
    std::filesystem::remove_all(directory_ / "ranks");
    std::filesystem::create_directory(directory_ / "ranks");
    const schedule::Schedule schedule = Generated(name, 4);
    Run(schedule, 0, 5);
    const auto found = ValueOf(Find());
    EXPECT_EQ(found.schedule.name, name);
    EXPECT_EQ(found.schedule.pp_ranks, schedule.pp_ranks);
    EXPECT_EQ(found.schedule.microbatches, 4);
    EXPECT_EQ(found.steps, 6);
    EXPECT_EQ(found.first, 0);
    EXPECT_EQ(found.last, 5);
    EXPECT_THAT(found.others, IsEmpty());
  }
}

TEST_F(RanScheduleTest, TakesTheStagesOfTheLogs) {
  const schedule::Schedule looped = Generated("interleaved-1f1b", 4, 2);
  Run(looped, 0, 3);
  EXPECT_EQ(Find()->schedule.name, "interleaved-1f1b");
  std::filesystem::remove_all(directory_ / "ranks");
  std::filesystem::create_directory(directory_ / "ranks");

  const schedule::Schedule folded = Generated("zb-v", 4, 2);
  Begin({0, 0, 0}, {0, 3});
  Begin({0, 1, 0}, {1, 2});
  Run(folded, 0, 3);
  const auto found = ValueOf(Find());
  EXPECT_EQ(found.schedule.name, "zb-v");
  EXPECT_EQ(found.schedule.pp_rank_of_stage, folded.pp_rank_of_stage);
  EXPECT_EQ(schedule::FormatSchedule(found.schedule), schedule::FormatSchedule(folded));
}

TEST_F(RanScheduleTest, IsTheNewestThatRanInSeveralSteps) {
  const schedule::Schedule full = Generated("1f1b", 6);
  schedule::Schedule evaluation = Generated("gpipe", 4);
  for (auto& rank : evaluation.pp_ranks) rank.resize(4);  // Only the forwards.
  Run(Generated("1f1b", 4), 0, 4);                        // The batch size grows.
  Run(full, 5, 8);
  Run(evaluation, 9, 12);
  Run(full, 13, 13);
  Run(Generated("1f1b", 2), 14, 14);  // The last batch of an epoch.
  const auto found = ValueOf(Find());
  EXPECT_EQ(found.schedule.microbatches, 6);
  EXPECT_EQ(found.steps, 5);
  EXPECT_EQ(found.first, 5);
  EXPECT_EQ(found.last, 8);
  EXPECT_THAT(found.others,
              ElementsAre(Pair("with 2 microbatches", ElementsAre(14)),
                          Pair("with 4 microbatches", ElementsAre(0, 1, 2, 3, 4)),
                          Pair("without backwards (an evaluation)", ElementsAre(9, 10, 11, 12))));
  EXPECT_THAT(Describe(found), HasSubstr("other steps, with 2 microbatches: 1 (step 14)\n"));
}

TEST_F(RanScheduleTest, AnOrderThatIsNotGeneratedIsRecorded) {
  schedule::Schedule schedule = Generated("gpipe", 2);
  std::swap(schedule.pp_ranks[0][2], schedule.pp_ranks[0][3]);
  std::swap(schedule.pp_ranks[1][2], schedule.pp_ranks[1][3]);
  Run(schedule, 0, 3);
  const auto found = ValueOf(Find());
  EXPECT_EQ(found.schedule.name, "recorded");
  EXPECT_EQ(schedule::FormatSchedule(found.schedule), "0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n");
}

TEST_F(RanScheduleTest, CountsPipelinesAndGpusOfAStage) {
  for (int dp = 0; dp < 3; ++dp) {
    for (int tp = 0; tp < 2; ++tp) Run(Generated("1f1b", 4), 0, 3, dp, tp);
  }
  const auto found = ValueOf(Find());
  EXPECT_EQ(found.pipelines, 3);
  EXPECT_EQ(found.gpus_per_stage, 2);
}

TEST_F(RanScheduleTest, NamesTheRankWithoutSteps) {
  Begin({0, 0, 0});
  Append({0, 0, 0}, StepOf(Generated("1f1b", 4), 0, 0));
  ExpectError("run: no steps of dp0-pp1-tp0 are recorded, of 2 ranks (does every rank use");
  Run(Generated("1f1b", 4), 0, 3, 2);
  ExpectError("no steps of dp0-pp1-tp0, dp1-pp0-tp0, dp1-pp1-tp0 are recorded, of 6 ranks");
}

TEST_F(RanScheduleTest, ReportsPipelinesThatDiffer) {
  Run(Generated("1f1b", 4), 0, 3, 0);
  Run(Generated("gpipe", 4), 0, 3, 1);
  ExpectError("ranks dp0-pp0-tp0 and dp1-pp0-tp0 ran different orders in step 3, but a job has");
}

TEST_F(RanScheduleTest, ReportsTheNumberOfRanksThatDiffers) {
  Begin({0, 0, 0}, {}, 2);
  Begin({0, 1, 0}, {}, 4);
  Run(Generated("1f1b", 4), 0, 3);
  ExpectError(
      "rank dp0-pp0-tp0 belongs to a pipeline of 2 ranks, but rank dp0-pp1-tp0 to one of 4");
}

TEST_F(RanScheduleTest, ReportsWhatIsNoIteration) {
  schedule::Schedule schedule = Generated("1f1b", 4);
  schedule.pp_ranks[1].pop_back();
  Run(schedule, 0, 3);
  ExpectError("step 3 is not one iteration of a pipeline: pp_rank 1: backward of microbatch 3");
}

TEST_F(RanScheduleTest, ReportsStagesThatContradictEachOther) {
  Begin({0, 0, 0}, {0, 3});
  Begin({0, 1, 0}, {1, 3});
  Run(Generated("zb-v", 4, 2), 0, 3);
  ExpectError("stage 3 is on pp_ranks 0 and 1");
}

TEST_F(RanScheduleTest, ReportsChunksWithoutAStage) {
  Begin({0, 0, 0}, {0});
  Begin({0, 1, 0}, {1});
  Run(Generated("zb-v", 4, 2), 0, 3);
  ExpectError("rank dp0-pp0-tp0 names 1 stages, but its instructions have 2 chunks");
}

TEST_F(RanScheduleTest, ReportsTooFewSteps) {
  Run(Generated("1f1b", 4), 0, 1);
  ExpectError("no order of instructions ran in 3 consecutive steps of all ranks; 2 steps");
}

TEST_F(RanScheduleTest, ReportsStepsWithoutInstructions) {
  schedule::Schedule schedule = Generated("1f1b", 4);
  for (auto& rank : schedule.pp_ranks) rank.clear();
  Run(schedule, 0, 3);
  ExpectError("step 3 is recorded without an instruction");
}

TEST_F(RanScheduleTest, WaitsForAllRanksOfARunningJob) {
  // This log belongs to an earlier run with other numbers of ranks.
  Begin({0, 5, 0}, {}, 6);
  Append({0, 5, 0}, StepOf(Generated("1f1b", 4), 1, 0));
  FakeClock clock;
  std::int64_t step = 0;
  ScheduleWait wait;
  wait.should_end = [&] {
    if (step == 0) Begin({0, 0, 0}, {}, 2, 2);
    if (step == 0) Begin({0, 1, 0}, {}, 2, 2);
    Run(Generated("1f1b", 4), step, step);
    ++step;
    return false;
  };
  EXPECT_EQ(ValueOf(AwaitRanSchedule(directory_.path(), wait, clock)).schedule.name, "1f1b");

  wait.should_end = [] { return false; };
  EXPECT_THAT(AwaitRanSchedule(directory_.path(), wait, clock),
              FailsAs(ErrorKind::kSystem, HasSubstr("no step was recorded for 60 s")));
}

}  // namespace
}  // namespace perseus::tuner
