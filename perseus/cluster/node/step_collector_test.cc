#include "perseus/cluster/node/step_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perseus::node {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Nanoseconds kEpoch = 1'000'000'000'000'000'000;

protocol::RankHeader Rank(int pipeline, int rank, Nanoseconds epoch = kEpoch) {
  protocol::RankHeader header;
  header.name = {pipeline, rank, 0};
  header.epoch = epoch;
  return header;
}

// A step begins every 1,000 ms. A step ends 10 ms before the next step begins.
//
//   |- 0 ------------------ computes to 900 --- 990 -|  |- 1000 …
protocol::RanStep Step(std::int64_t number, Nanoseconds computes = 900 * kMillisecond) {
  protocol::RanStep step;
  step.step = number;
  step.begin = number * 1'000 * kMillisecond;
  step.end = step.begin + 990 * kMillisecond;
  step.instructions = {
      {InstructionKind::kForward, 0, 0, 0, 100 * kMillisecond, 0},
      {InstructionKind::kBackward, 0, 0, computes - 200 * kMillisecond, 200 * kMillisecond, 0}};
  // The GPU draws 300 W. The last value of the counter is 40 ms older than the end of the step.
  const Nanoseconds last = 950 * kMillisecond;
  step.energy = {{last - 10 * kMillisecond, last + 10 * kMillisecond,
                  300.0 * (static_cast<double>(number) + 0.95)}};
  return step;
}

TEST(StepCollector, ReportsAStepOnceAllRanksHaveEndedIt) {
  StepCollector collector;
  collector.Add(Rank(0, 0), Step(5), 6, 0);
  collector.Add(Rank(0, 1), Step(5, 930 * kMillisecond), 6, 0);
  EXPECT_THAT(collector.Take(0), SizeIs(1));
  collector.Add(Rank(0, 0), Step(6), 7, 0);
  EXPECT_THAT(collector.Take(0), IsEmpty());
  collector.Add(Rank(0, 1), Step(6, 930 * kMillisecond), 6, 0);
  const auto reports = collector.Take(0);
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_EQ(reports[0].step, 6);
  EXPECT_EQ(reports[0].ranks, 2);
  EXPECT_EQ(reports[0].version, 6);            // The lowest version that any rank followed.
  EXPECT_DOUBLE_EQ(reports[0].time_s, 1.0);    // From the end of step 5 to its own end.
  EXPECT_DOUBLE_EQ(reports[0].busy_s, 0.930);  // Until the last computation.
  ASSERT_TRUE(reports[0].energy_j);
  EXPECT_NEAR(*reports[0].energy_j, 2 * 300.0, 1e-9);
  EXPECT_THAT(collector.Take(0), IsEmpty());
}

TEST(StepCollector, TheFirstStepCountsFromItsBeginWithoutEnergy) {
  StepCollector collector;
  collector.Add(Rank(0, 0), Step(5), 0, 0);
  EXPECT_THAT(collector.Take(0),
              ElementsAre(protocol::StepReport{5, 0, 0.990, 0.900, std::nullopt, 0, 1}));
  // A step also counts from its begin if the previous step was not recorded.
  collector.Add(Rank(0, 0), Step(9), 0, 0);
  EXPECT_DOUBLE_EQ(collector.Take(0).at(0).time_s, 0.990);
}

// The first of these ranks reached only its power limit, so it is as fast as always. The last rank
// has the log of an older client.
TEST(StepCollector, ARankAtItsPowerLimitIsNotLimited) {
  StepCollector collector;
  protocol::RanStep step = Step(5);
  step.is_limited = true;
  step.limited_by = {"power"};
  collector.Add(Rank(0, 0), step, 6, 0);
  step.limited_by = {"power", "temperature"};
  collector.Add(Rank(0, 1), step, 6, 0);
  step.limited_by = {};
  collector.Add(Rank(0, 2), step, 6, 0);
  EXPECT_EQ(collector.Take(0).at(0).limited, 2);
}

// Without a pipeline, ranks wait for the slowest one within instructions (FSDP), and before the
// optimizer steps. So the instructions of all of them end together.
TEST(StepCollector, WaitingForOtherPipelinesIsNotBusy) {
  StepCollector collector;
  protocol::RanStep step = Step(5);
  step.waits = {{20 * kMillisecond, 30 * kMillisecond}, {750 * kMillisecond, 70 * kMillisecond}};
  collector.Add(Rank(0, 0), step, 6, 0);
  step.waits.clear();
  step.instructions.push_back(
      {InstructionKind::kOptimizerStep, 0, 0, 950 * kMillisecond, 40 * kMillisecond, 0});
  collector.Add(Rank(1, 0), step, 6, 0);
  const auto reports = collector.Take(0);
  ASSERT_THAT(reports, SizeIs(2));
  EXPECT_DOUBLE_EQ(reports[0].busy_s, 0.800);
  EXPECT_DOUBLE_EQ(reports[1].busy_s, 0.940);
}

TEST(StepCollector, CountsRanksThatFollowAPlanWithoutALease) {
  StepCollector collector;
  protocol::RanStep step = Step(5);
  step.has_plan = step.on_plan = true;
  collector.Add(Rank(0, 0), step, 6, 0);
  step.instructions.back().frequency_mhz = 1410;
  collector.Add(Rank(1, 0), step, 6, 0);
  const auto reports = collector.Take(0);
  ASSERT_THAT(reports, SizeIs(2));
  EXPECT_EQ(reports[0].without_clocks, 1);
  EXPECT_EQ(reports[1].without_clocks, 0);
}

TEST(StepCollector, PipelinesAreSeparate) {
  StepCollector collector;
  collector.Add(Rank(0, 0), Step(5), 6, 0);
  collector.Add(Rank(1, 0), Step(4, 800 * kMillisecond), 6, 0);
  const auto reports = collector.Take(0);
  ASSERT_THAT(reports, SizeIs(2));
  EXPECT_EQ(reports[1].dp_rank, 1);
  EXPECT_EQ(reports[1].step, 4);
  EXPECT_DOUBLE_EQ(reports[1].busy_s, 0.800);
}

TEST(StepCollector, AlignsTheClocksOfHosts) {
  StepCollector collector;
  collector.Add(Rank(0, 0), Step(5), 6, 0);
  // The clock of its host is behind by one second, and the rank began 20 ms later.
  protocol::RanStep other = Step(5);
  other.begin -= 980 * kMillisecond;
  other.end -= 980 * kMillisecond;
  collector.Add(Rank(0, 1, kEpoch + 1'000 * kMillisecond), other, 6, 0);
  EXPECT_DOUBLE_EQ(collector.Take(0).at(0).busy_s, 0.920);
}

TEST(StepCollector, WaitsOnlyOnceForARankWithoutRecords) {
  StepCollector collector;
  for (int rank = 0; rank < 2; ++rank) collector.Add(Rank(0, rank), Step(5), 6, 0);
  EXPECT_THAT(collector.Take(0), SizeIs(1));
  collector.Add(Rank(0, 0), Step(6), 6, 1'000 * kMillisecond);
  EXPECT_THAT(collector.Take(1'999 * kMillisecond), IsEmpty());
  EXPECT_EQ(collector.Take(2'000 * kMillisecond).at(0).ranks, 1);
  collector.Add(Rank(0, 0), Step(7), 6, 2'000 * kMillisecond);
  EXPECT_EQ(collector.Take(2'000 * kMillisecond).at(0).ranks, 1);
  // A record of a reported step is ignored. The rank counts again from its next step on.
  collector.Add(Rank(0, 1), Step(7), 6, 2'100 * kMillisecond);
  collector.Add(Rank(0, 0), Step(8), 6, 3'000 * kMillisecond);
  EXPECT_THAT(collector.Take(3'000 * kMillisecond), IsEmpty());
  collector.Add(Rank(0, 1), Step(8), 6, 3'050 * kMillisecond);
  EXPECT_EQ(collector.Take(3'050 * kMillisecond).at(0).ranks, 2);
}

TEST(StepCollector, StepsBeforeACompleteStepDoNotWait) {
  StepCollector collector;
  for (int rank = 0; rank < 2; ++rank) collector.Add(Rank(0, rank), Step(5), 6, 0);
  static_cast<void>(collector.Take(0));
  collector.Add(Rank(0, 0), Step(6), 6, 0);  // The other rank did not record this step.
  for (int rank = 0; rank < 2; ++rank) collector.Add(Rank(0, rank), Step(7), 6, 0);
  const auto reports = collector.Take(0);
  ASSERT_THAT(reports, SizeIs(2));
  EXPECT_EQ(reports[0].ranks, 1);
  EXPECT_EQ(reports[1].ranks, 2);
}

TEST(StepCollector, ARestartedRankCountsFromStepZero) {
  StepCollector collector;
  for (int step = 4; step < 6; ++step) collector.Add(Rank(0, 0), Step(step), 6, 0);
  EXPECT_THAT(collector.Take(0), SizeIs(2));
  collector.Restart({0, 0, 0});
  protocol::RanStep first = Step(0);
  first.begin = first.begin + 20'000 * kMillisecond;
  first.end = first.end + 20'000 * kMillisecond;
  collector.Add(Rank(0, 0), first, 0, 0);
  EXPECT_THAT(collector.Take(0),
              ElementsAre(protocol::StepReport{0, 0, 0.990, 0.900, std::nullopt, 0, 1}));
}

TEST(StepCollector, EnergyIsUnknownWithoutAValidCounterOfEachRank) {
  StepCollector collector;
  for (int rank = 0; rank < 2; ++rank) collector.Add(Rank(0, rank), Step(5), 6, 0);
  collector.Add(Rank(0, 0), Step(6), 6, 0);
  protocol::RanStep unmetered = Step(6);
  unmetered.energy.clear();
  collector.Add(Rank(0, 1), unmetered, 6, 0);
  EXPECT_FALSE(collector.Take(0).at(1).energy_j);
  // The driver was loaded again, so the counter begins at 0.
  collector.Add(Rank(0, 0), Step(7), 6, 0);
  protocol::RanStep reset = Step(7);
  reset.energy[0].energy_j = 1;
  collector.Add(Rank(0, 1), reset, 6, 0);
  EXPECT_FALSE(collector.Take(0).at(0).energy_j);
}

}  // namespace
}  // namespace perseus::node
