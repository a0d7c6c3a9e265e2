// When a plan is thinned, and for which time of a step.
#include "perseus/runtime/client/plan_thinner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace perseus::client {
namespace {

using ::testing::HasSubstr;

const std::vector<int> kTwoClocks = {900, 1200};

// Ten changes in a second.
ClockTable AlternatingTable(std::uint64_t number = 1) {
  ClockTable table;
  table.source = ClockTable::Source::kPlan;
  table.number = number;
  for (int i = 0; i < 10; ++i) {
    table.order.push_back({InstructionKind::kForward, i, 0, i % 2 == 0 ? 900 : 1200});
    table.costs.push_back({table.time, kSecond / 10, 10.0});
    table.time += kSecond / 10;
  }
  return table;
}

class PlanThinnerTest : public testing::Test {
 protected:
  // -1: nothing new. Else the changes of a step that are skipped.
  int Update(const ClockTable* table, double most_changes_per_s) {
    last_ = thinner_.Update(table, kTwoClocks, most_changes_per_s);
    return last_ == nullptr ? -1 : last_->skipped;
  }
  void RunSteps(int count, Nanoseconds time) {
    for (int i = 0; i < count; ++i) thinner_.AddStepBegin(step_++, now_ += time);
  }

  PlanThinner thinner_;
  std::unique_ptr<ThinnedPlan> last_;
  std::int64_t step_ = 0;
  Nanoseconds now_ = kSecond;
  const ClockTable table_ = AlternatingTable();
};

TEST_F(PlanThinnerTest, WithoutALimitNothingIsThinned) {
  EXPECT_EQ(Update(&table_, 0), -1);
  EXPECT_EQ(Update(nullptr, 5), -1);
  EXPECT_EQ(Update(&table_, 11), -1) << "10 changes are within 95 % of 11 per second";
}

TEST_F(PlanThinnerTest, ThinsToTheShareLessAMargin) {
  EXPECT_EQ(Update(&table_, 10), 2) << "8 are left, because valleys end in pairs";
  EXPECT_EQ(last_->table, 1U);
  EXPECT_THAT(
      thinner_.Describe(*last_),
      HasSubstr("allows this GPU 10 clock changes per second, and the plan has 10 in a step "
                "of 1 s; 2 of them"));
  EXPECT_EQ(Update(&table_, 10), -1) << "nothing has changed";
}

TEST_F(PlanThinnerTest, AnotherShareIsAnotherPlan) {
  EXPECT_EQ(Update(&table_, 10), 2);
  EXPECT_EQ(Update(&table_, 5), 6);
  EXPECT_EQ(Update(&table_, 10), 2);
  EXPECT_EQ(Update(&table_, 20), 0) << "back to the table";
  EXPECT_EQ(last_->table, 0U);
  EXPECT_EQ(Update(&table_, 20), -1);
  EXPECT_EQ(Update(&table_, 5), 6);
  EXPECT_EQ(Update(&table_, 0), 0) << "the limit or the lease is gone";
  EXPECT_EQ(last_->table, 0U);
  EXPECT_EQ(Update(&table_, 0), -1);
}

TEST_F(PlanThinnerTest, MeasuresTheTimeOfAStep) {
  EXPECT_EQ(Update(&table_, 5), 6);
  RunSteps(3, 2 * kSecond);
  EXPECT_EQ(Update(&table_, 5), -1) << "two times are too few";
  RunSteps(1, 2 * kSecond);
  EXPECT_EQ(Update(&table_, 5), 2) << "9.5 changes in a step of 2 s";
  RunSteps(5, 2 * kSecond + kSecond / 20);
  EXPECT_EQ(Update(&table_, 5), -1) << "2.5 % longer";
  RunSteps(5, 3 * kSecond);
  EXPECT_EQ(Update(&table_, 5), 2)
      << "a longer step spreads no changes: the burst of the plan is what it was";
}

TEST_F(PlanThinnerTest, OneLongStepChangesNothing) {
  EXPECT_EQ(Update(&table_, 5), 6);
  RunSteps(5, kSecond);
  RunSteps(1, 30 * kSecond);
  RunSteps(1, kSecond);
  EXPECT_EQ(Update(&table_, 5), -1);
}

TEST_F(PlanThinnerTest, AMissingStepHasNoTime) {
  EXPECT_EQ(Update(&table_, 5), 6);
  for (int i = 0; i < 6; ++i) {
    RunSteps(1, kSecond);
    ++step_;
    now_ += kSecond;
  }
  EXPECT_EQ(Update(&table_, 5), -1);
}

TEST_F(PlanThinnerTest, AnotherTableIsThinnedAtOnce) {
  EXPECT_EQ(Update(&table_, 5), 6);
  RunSteps(5, 2 * kSecond);
  const ClockTable other = AlternatingTable(2);
  EXPECT_EQ(Update(&other, 5), 6) << "by its planned time";
  EXPECT_EQ(last_->table, 2U);
}

TEST_F(PlanThinnerTest, OneClockForEachKindIsNotThinned) {
  EXPECT_EQ(Update(&table_, 5), 6);
  ClockTable kinds;
  kinds.source = ClockTable::Source::kKinds;
  kinds.number = 2;
  kinds.kind_clocks = {900, 1200, 0, 0, 0};
  EXPECT_EQ(Update(&kinds, 5), 0);
  EXPECT_EQ(last_->table, 0U);
}

}  // namespace
}  // namespace perseus::client
