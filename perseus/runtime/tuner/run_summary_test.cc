#include "perseus/runtime/tuner/run_summary.h"

#include <gtest/gtest.h>

#include <fstream>

#include "perseus/runtime/protocol/job_directory/rank_log.h"
#include "tests/support/results.h"
#include "tests/support/temporary_directory.h"

namespace perseus::tuner {
namespace {

class RunSummaryTest : public testing::Test {
 protected:
  RunSummaryTest() { std::filesystem::create_directory(directory_ / "ranks"); }

  void Append(const protocol::RankId& name, const protocol::RankRecord& record) const {
    std::ofstream(protocol::RankLogPath(directory_, name), std::ios::app)
        << protocol::FormatRecord(record);
  }
  void Begin(const protocol::RankId& name, int pid) const {
    protocol::RankHeader header;
    header.name = name;
    header.pid = pid;
    Append(name, header);
  }
  // Steps take 2 s at 100 W. The counter is read in the middle of each step.
  void Add(const protocol::RankId& name, std::int64_t number, bool on_plan = false) const {
    protocol::RanStep step;
    step.step = number;
    step.has_plan = true;
    step.on_plan = on_plan;
    step.begin = 2 * number * kSecond;
    step.end = step.begin + kSecond;
    step.energy.push_back({kSecond, kSecond, 1000 + 200.0 * static_cast<double>(number)});
    Append(name, step);
  }

  TemporaryDirectory directory_;
  const std::filesystem::file_time_type start_ = std::filesystem::file_time_type::min();
};

TEST_F(RunSummaryTest, CountsRanksThatRanOutsideOfAStep) {
  Begin({0, 0, 0}, 1);
  std::ofstream(directory_ / "ranks/dp0-pp0-tp0.outside") << "why";
  std::ofstream(directory_ / "ranks/dp0-pp1-tp0.outside") << "why";
  const auto summary = ValueOf(SumUpRun(directory_.path(), start_));
  EXPECT_EQ(summary.ranks, 0);
  EXPECT_EQ(summary.ranks_outside, 2);
  const auto later = std::filesystem::file_time_type::max();
  EXPECT_EQ(ValueOf(SumUpRun(directory_.path(), later)).ranks_outside, 0);
}

TEST_F(RunSummaryTest, AddsUpRanks) {
  for (int rank = 0; rank < 3; ++rank) {
    Begin({0, rank, 0}, 1);
    for (int step = 0; step < 5; ++step) Add({0, rank, 0}, step, step != 4);
  }
  const auto summary = ValueOf(SumUpRun(directory_.path(), start_));
  EXPECT_EQ(summary.ranks, 3);
  EXPECT_EQ(summary.missing_ranks, 0);
  EXPECT_EQ(summary.steps, 5);
  EXPECT_EQ(summary.fewest_steps, 5);
  EXPECT_DOUBLE_EQ(summary.step_time_s, 2);
  EXPECT_DOUBLE_EQ(summary.energy_j, 5 * summary.energy_per_step_j);
  EXPECT_DOUBLE_EQ(summary.energy_per_step_j, 3 * 200);
  EXPECT_EQ(summary.planned_steps, 15);
  EXPECT_EQ(summary.off_plan_steps, 3);
}

// Rank 2 is the slowest one, by 0.3 s of its 0.9 s, until a plan makes all of them equally fast.
TEST_F(RunSummaryTest, RanksWithoutAPipelineWaitForTheSlowestOne) {
  for (int rank = 0; rank < 3; ++rank) {
    Begin({rank, 0, 0}, 1);
    for (int number = 0; number < 7; ++number) {
      protocol::RanStep step;
      step.step = number;
      step.has_plan = step.on_plan = number > 3;
      step.begin = 2 * number * kSecond;
      step.end = step.begin + kSecond;
      const Nanoseconds half = rank == 2 || step.has_plan ? 450 * kMillisecond : 300 * kMillisecond;
      step.instructions = {{InstructionKind::kForward, 0, 0, 0, half, 0},
                           {InstructionKind::kBackward, 0, 0, half, half, 0}};
      Append({rank, 0, 0}, step);
    }
  }
  const auto summary = ValueOf(SumUpRun(directory_.path(), start_));
  EXPECT_NEAR(summary.waiting_s.value(), 0.2, 1e-9);
  EXPECT_NEAR(summary.planned_waiting_s.value(), 0, 1e-9);
}

TEST_F(RunSummaryTest, WaitingIsUnknownForOneRankAndForAPipeline) {
  Begin({0, 0, 0}, 1);
  Add({0, 0, 0}, 0);
  EXPECT_EQ(ValueOf(SumUpRun(directory_.path(), start_)).waiting_s, std::nullopt);
  Begin({0, 1, 0}, 1);
  Add({0, 1, 0}, 0);
  EXPECT_EQ(ValueOf(SumUpRun(directory_.path(), start_)).waiting_s, std::nullopt);
}

TEST_F(RunSummaryTest, HasTheSamplesAndTokensOfAStep) {
  Begin({0, 0, 0}, 1);
  Add({0, 0, 0}, 0);
  std::ofstream(directory_ / "ranks/dp0-pp0-tp0.progress")
      << R"({"perseus_progress":1,"steps":2,"samples":8,"tokens":4096})";
  const auto summary = ValueOf(SumUpRun(directory_.path(), start_));
  EXPECT_EQ(summary.samples_per_step, 4);
  EXPECT_EQ(summary.tokens_per_step, 2048);
}

// A counter that fell, or gave way to integrated power.
TEST_F(RunSummaryTest, AWindowInWhichTheEnergyFellDoesNotCount) {
  Begin({0, 0, 0}, 1);
  const auto add = [&](std::int64_t number, double energy_j) {
    protocol::RanStep step;
    step.step = number;
    step.begin = 2 * number * kSecond;
    step.end = step.begin + kSecond;
    step.energy.push_back({kSecond, kSecond, energy_j});
    Append({0, 0, 0}, step);
  };
  add(0, 5000);
  add(1, 5200);
  for (int number = 2; number < 6; ++number) add(number, 200.0 * (number - 2));
  EXPECT_DOUBLE_EQ(ValueOf(SumUpRun(directory_.path(), start_)).energy_per_step_j, 200);
}

TEST_F(RunSummaryTest, TheFirstStepsDoNotCountInTheTimeOfAStep) {
  Begin({0, 0, 0}, 1);
  const auto add = [&](std::int64_t number, std::int64_t begin_s) {
    protocol::RanStep step;
    step.step = number;
    step.begin = begin_s * kSecond;
    step.end = step.begin + kSecond;
    Append({0, 0, 0}, step);
  };
  add(0, 0);
  add(1, 40);  // The first step includes compilation.
  for (int step = 2; step < 10; ++step) add(step, 40 + 2 * (step - 1));
  EXPECT_DOUBLE_EQ(ValueOf(SumUpRun(directory_.path(), start_)).step_time_s, 2);
}

// The log of one rank could not be written, as with a full disk. The log of another rank ended
// early.
TEST_F(RunSummaryTest, CountsStepsOfAPlanWithoutALease) {
  Begin({0, 0, 0}, 1);
  protocol::RanStep step;
  step.has_plan = step.on_plan = true;
  step.end = kSecond;
  step.instructions.push_back({InstructionKind::kForward, 0, 0, 0, kSecond, 0});
  Append({0, 0, 0}, step);
  step.step = 1;
  step.on_plan = false;
  Append({0, 0, 0}, step);
  step.step = 2;
  step.on_plan = true;
  step.instructions.push_back({InstructionKind::kBackward, 0, 0, 0, kSecond, 1410});
  Append({0, 0, 0}, step);
  const auto summary = ValueOf(SumUpRun(directory_.path(), start_));
  EXPECT_EQ(summary.planned_steps, 3);
  EXPECT_EQ(summary.off_plan_steps, 1);
  EXPECT_EQ(summary.unset_steps, 1);
}

TEST_F(RunSummaryTest, TellsThePowerLimitFromFaults) {
  protocol::RankHeader header;
  header.pid = 1;
  header.sm_clocks_mhz = {1000, 1400};
  Append({}, header);
  protocol::RanStep step;
  step.is_limited = true;
  for (const int mhz : {1300, 1310, 1290}) {
    step.limited_by = {"power"};
    step.reached = {{10, mhz}, {20, mhz + 1}, {30, mhz + 1}};
    Append({}, step);
    ++step.step;
  }
  step.reached.clear();
  step.limited_by = {"power", "temperature"};
  Append({}, step);
  ++step.step;
  step.is_limited = false;
  step.limited_by.clear();
  Append({}, step);
  const auto summary = ValueOf(SumUpRun(directory_.path(), start_));
  EXPECT_EQ(summary.steps_at_power_limit, 3);
  EXPECT_EQ(summary.reached_mhz, 1301);
  EXPECT_EQ(summary.highest_mhz, 1400);
  EXPECT_EQ(summary.disturbance.of_steps, 5);
  EXPECT_EQ(summary.disturbance.steps, 1);
  EXPECT_EQ(Describe(summary.disturbance), "heat held its clock down (cool the GPU)");
}

TEST_F(RunSummaryTest, SaysWhichRanksAreMissing) {
  for (const int rank : {0, 2}) {
    protocol::RankHeader header;
    header.name = {1, rank, 0};
    header.pp_ranks = 4;
    Append(header.name, header);
    for (int step = 0; step < (rank == 0 ? 5 : 1); ++step) Add({1, rank, 0}, step);
  }
  const auto summary = ValueOf(SumUpRun(directory_.path(), start_));
  EXPECT_EQ(summary.ranks, 2);
  EXPECT_EQ(summary.missing_ranks, 2);
  EXPECT_EQ(summary.steps, 5);
  EXPECT_EQ(summary.fewest_steps, 1);
  EXPECT_DOUBLE_EQ(summary.step_time_s, 2);
}

TEST_F(RunSummaryTest, LeavesOutLogsOfAnEarlierRun) {
  Add({0, 0, 0}, 0);
  const auto path = protocol::RankLogPath(directory_, {0, 0, 0});
  const auto changed = std::filesystem::last_write_time(path);
  EXPECT_EQ(SumUpRun(directory_.path(), changed)->ranks, 1);
  EXPECT_EQ(SumUpRun(directory_.path(), changed + std::chrono::seconds(1))->ranks, 0);
  EXPECT_EQ(SumUpRun(directory_ / "absent", start_)->ranks, 0);
}

TEST_F(RunSummaryTest, CountsTheProcessThatRanLast) {
  Begin({0, 0, 0}, 1);
  for (int step = 0; step < 5; ++step) Add({0, 0, 0}, step);
  Begin({0, 0, 0}, 2);
  Add({0, 0, 0}, 0);
  std::ofstream(protocol::RankLogPath(directory_, {0, 0, 0}), std::ios::app) << "nonsense\n{";
  const auto summary = ValueOf(SumUpRun(directory_.path(), start_));
  EXPECT_EQ(summary.steps, 1);
  EXPECT_EQ(summary.step_time_s, 0);
  EXPECT_EQ(summary.energy_j, 0);
}

}  // namespace
}  // namespace perseus::tuner
