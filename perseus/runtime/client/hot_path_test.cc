// The calls of a training thread, at fixed times.
#include "perseus/runtime/client/hot_path.h"

#include <gmock/gmock.h>

#include <memory>
#include <utility>
#include <vector>

namespace perseus::client {
namespace {

using ::testing::ElementsAre;

constexpr InstructionKind kF = InstructionKind::kForward;
constexpr InstructionKind kB = InstructionKind::kBackward;
constexpr int kNoChange = HotPath::kNoChange;

// F0 at 1000, F1 at 900, B0 at 900, B1 at 1200 MHz.
std::unique_ptr<ClockTable> PlanOfFour(std::int64_t version = 1, std::int64_t from_step = 0) {
  auto table = std::make_unique<ClockTable>();
  table->source = ClockTable::Source::kPlan;
  table->order = {{kF, 0, 0, 1000}, {kF, 1, 0, 900}, {kB, 0, 0, 900}, {kB, 1, 0, 1200}};
  table->version = version;
  table->from_step = from_step;
  table->slowdown = 1.02;
  return table;
}

class HotPathTest : public testing::Test {
 protected:
  // The clocks wanted at the begin and the end of each instruction.
  std::vector<int> Run(const std::vector<Instruction>& instructions) {
    std::vector<int> wanted;
    for (const Instruction& what : instructions) {
      wanted.push_back(hot_.InstructionBegin(what, ++now_));
      wanted.push_back(hot_.InstructionEnd(++now_));
    }
    return wanted;
  }
  std::vector<Event> Events() {
    std::vector<Event> events;
    while (const auto event = events_.Pop()) events.push_back(*event);
    return events;
  }

  int BeginStepWithAnInstruction(Nanoseconds now) {
    const int wanted = hot_.StepBegin(now);
    Run({{kF, 0, 0}});
    return wanted;
  }

  Ring<Event> events_{16};
  Handover<ClockTable> tables_;
  HotCounters counters_;
  HotTrouble trouble_;
  HotPath hot_{events_, tables_, counters_, trouble_};
  Nanoseconds now_ = 0;
};

TEST_F(HotPathTest, LearnsTheUsualTimeBetweenSteps) {
  Nanoseconds now = kSecond;
  const auto step_after = [&](Nanoseconds gap) {
    now += gap;
    hot_.StepBegin(now);
    now += kSecond;
    hot_.StepEnd(now);
    return counters_.usual_gap.load();
  };
  EXPECT_EQ(step_after(0), 0);
  EXPECT_EQ(step_after(80 * kMillisecond), 80 * kMillisecond);
  EXPECT_EQ(step_after(80 * kMillisecond), 80 * kMillisecond);
  EXPECT_EQ(step_after(160 * kMillisecond), 90 * kMillisecond);
  // An evaluation counts as one second.
  EXPECT_EQ(step_after(50 * kSecond), (90 + 910 / 8) * kMillisecond + 750'000);
}

TEST_F(HotPathTest, AnAbandonedStepIsNotWholeAndIsNoFaultOfThePlan) {
  tables_.Offer(PlanOfFour());
  hot_.StepBegin(0);
  Run({{kF, 0, 0}});
  EXPECT_EQ(hot_.InstructionBegin({kF, 1, 0}, ++now_), 900);
  EXPECT_EQ(hot_.StepAbandon(++now_), 0);
  EXPECT_EQ(hot_.StepAbandon(++now_), kNoChange);
  const std::vector<Event> events = Events();
  EXPECT_EQ(events.back().type, Event::Type::kStepEnd);
  EXPECT_FALSE(events.back().is_whole);
  EXPECT_TRUE(events.back().has_plan);
  EXPECT_EQ(counters_.steps, 0U);
  EXPECT_EQ(counters_.steps_abandoned, 1U);
  EXPECT_EQ(counters_.steps_off_plan, 0U);
  EXPECT_FALSE(trouble_.is_off_plan);
  EXPECT_EQ(counters_.records_dropped, 0U);
  // The next step is a whole one again.
  EXPECT_EQ(hot_.StepBegin(++now_), 1000);
  Run({{kF, 0, 0}, {kF, 1, 0}, {kB, 0, 0}, {kB, 1, 0}});
  hot_.StepEnd(++now_);
  EXPECT_TRUE(Events().back().is_whole);
}

TEST_F(HotPathTest, ABaselineStepHasNoPlan) {
  hot_.StepBegin(0);
  hot_.StepEnd(1);
  const Event end = Events().back();
  EXPECT_FALSE(end.has_plan);
  EXPECT_TRUE(end.on_plan);
}

TEST_F(HotPathTest, TheClockReturnsBeforeTheLastInstructionEnds) {
  for (const Nanoseconds lead : {Nanoseconds{0}, Nanoseconds{30}}) {
    auto table = PlanOfFour();
    table->lead = lead;
    table->last_duration = 100;
    tables_.Offer(std::move(table));
    hot_.StepBegin(0);
    Run({{kF, 0, 0}, {kF, 1, 0}, {kB, 0, 0}});
    EXPECT_EQ(hot_.ReturnOfClock().at, 0);
    hot_.InstructionBegin({kB, 1, 0}, 1000);
    EXPECT_EQ(hot_.ReturnOfClock().at, lead > 0 ? 1070 : 0);
    EXPECT_EQ(hot_.ReturnOfClock().frequency_mhz, lead > 0 ? 1000 : 0);
    EXPECT_EQ(hot_.InstructionEnd(1100), lead > 0 ? 1000 : kNoChange);
    EXPECT_EQ(hot_.ReturnOfClock().at, 0);
    hot_.StepEnd(1100);
  }
}

TEST_F(HotPathTest, RequestsTheNextClockWhenAnInstructionEnds) {
  tables_.Offer(PlanOfFour());
  EXPECT_EQ(hot_.StepBegin(0), 1000);
  EXPECT_THAT(Run({{kF, 0, 0}, {kF, 1, 0}, {kB, 0, 0}, {kB, 1, 0}}),
              ElementsAre(1000, 900, 900, 900, 900, 1200, 1200, kNoChange));
  EXPECT_EQ(hot_.StepEnd(100), kNoChange);
  EXPECT_EQ(counters_.steps.load(), 1U);
  EXPECT_EQ(counters_.steps_off_plan.load(), 0U);
  EXPECT_EQ(counters_.instructions.load(), 4U);
  EXPECT_DOUBLE_EQ(counters_.slowdown.load(), 1.02);
  EXPECT_FALSE(trouble_.is_off_plan.load());
}

TEST_F(HotPathTest, AnotherOrderLeavesThePlanUntilTheNextStep) {
  tables_.Offer(PlanOfFour());
  hot_.StepBegin(0);
  EXPECT_THAT(Run({{kF, 0, 0}, {kB, 0, 0}, {kF, 1, 0}}),
              ElementsAre(1000, 900, 0, kNoChange, 0, kNoChange));
  EXPECT_FALSE(counters_.follows_plan.load());
  hot_.StepEnd(50);
  EXPECT_EQ(counters_.steps_off_plan.load(), 1U);
  ASSERT_TRUE(trouble_.is_off_plan.load());
  EXPECT_EQ(trouble_.position, 1U);
  EXPECT_EQ(trouble_.expected, (Instruction{kF, 1, 0}));
  EXPECT_EQ(trouble_.got, (Instruction{kB, 0, 0}));
  EXPECT_FALSE(Events().back().on_plan);

  EXPECT_EQ(hot_.StepBegin(60), 1000);
  EXPECT_TRUE(counters_.follows_plan.load());
  EXPECT_THAT(Run({{kF, 0, 0}}), ElementsAre(1000, 900));
}

TEST_F(HotPathTest, StepsWithoutInstructionsRunAtTheDefaultClock) {
  tables_.Offer(PlanOfFour());
  EXPECT_EQ(hot_.StepBegin(0), 1000);
  EXPECT_EQ(hot_.StepEnd(10), 0);
  EXPECT_EQ(hot_.StepBegin(20), 0);
  EXPECT_EQ(hot_.StepEnd(30), 0);
  EXPECT_EQ(hot_.StepBegin(40), 0);
  Run({{kF, 0, 0}});
  hot_.StepEnd(50);
  EXPECT_EQ(hot_.StepBegin(60), 1000);  // The previous step had instructions.
}

TEST_F(HotPathTest, AnInstructionIsAKindAMicrobatchAndAChunk) {
  for (const Instruction& other : std::vector<Instruction>{{kB, 0, 0}, {kF, 1, 0}, {kF, 0, 1}}) {
    tables_.Offer(PlanOfFour());
    hot_.StepBegin(0);
    EXPECT_EQ(hot_.InstructionBegin(other, 1), 0);
    hot_.StepEnd(2);
  }
  EXPECT_EQ(counters_.steps_off_plan.load(), 3U);
}

TEST_F(HotPathTest, AStepWithMoreInstructionsIsOffThePlan) {
  tables_.Offer(PlanOfFour());
  hot_.StepBegin(0);
  Run({{kF, 0, 0}, {kF, 1, 0}, {kB, 0, 0}, {kB, 1, 0}});
  EXPECT_EQ(hot_.InstructionBegin({kF, 2, 0}, 50), 0);
  hot_.StepEnd(60);
  EXPECT_EQ(counters_.steps_off_plan.load(), 1U);
  EXPECT_FALSE(trouble_.has_expected);
}

TEST_F(HotPathTest, APlanWithoutAnOptimizerIsFollowed) {
  tables_.Offer(PlanOfFour());
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(hot_.StepBegin(0), 1000);
    Run({{kF, 0, 0}, {kF, 1, 0}, {kB, 0, 0}, {kB, 1, 0}});
    EXPECT_THAT(Run({{InstructionKind::kOptimizerStep, 0, 0}}), ElementsAre(kNoChange, kNoChange));
    EXPECT_EQ(hot_.StepEnd(60), kNoChange);
  }
  EXPECT_EQ(counters_.steps_off_plan.load(), 0U);
}

TEST_F(HotPathTest, AShortLastBatchIsOffThePlan) {
  tables_.Offer(PlanOfFour());
  hot_.StepBegin(0);
  Run({{kF, 0, 0}, {kF, 1, 0}});
  EXPECT_EQ(hot_.StepEnd(60), 0);
  EXPECT_EQ(counters_.steps_off_plan.load(), 1U);
  EXPECT_FALSE(trouble_.has_got);
}

TEST_F(HotPathTest, EvaluationRunsAtTheDefaultClocksAndIsNotRecorded) {
  tables_.Offer(PlanOfFour());
  EXPECT_THAT(Run({{kF, 0, 0}}), ElementsAre(0, kNoChange));
  EXPECT_EQ(counters_.instructions.load(), 0U);
  EXPECT_TRUE(Events().empty());
}

TEST_F(HotPathTest, WithOneClockForEachKindTheOrderOfThePreviousStepIsExpected) {
  auto table = std::make_unique<ClockTable>();
  table->source = ClockTable::Source::kKinds;
  table->kind_clocks = {1000, 800, 0, 0, 0};
  tables_.Offer(std::move(table));
  const std::vector<Instruction> step = {{kF, 0, 0}, {kB, 0, 0}, {kF, 1, 0}, {kB, 1, 0}};
  EXPECT_EQ(hot_.StepBegin(0), kNoChange);
  EXPECT_THAT(Run(step),
              ElementsAre(1000, kNoChange, 800, kNoChange, 1000, kNoChange, 800, kNoChange));
  hot_.StepEnd(50);
  EXPECT_EQ(hot_.StepBegin(60), 1000);
  EXPECT_THAT(Run(step), ElementsAre(1000, 800, 800, 1000, 1000, 800, 800, kNoChange));
  hot_.StepEnd(90);
  // Another order is noticed when its instruction begins. It is not off the plan, as none exists.
  hot_.StepBegin(100);
  EXPECT_THAT(Run({{kF, 0, 0}, {kF, 1, 0}}), ElementsAre(1000, 800, 1000, 1000));
  hot_.StepEnd(150);
  EXPECT_EQ(counters_.steps_off_plan.load(), 0U);
  // A step without instructions (a CUDA graph) leaves the default clock to the steps after it.
  hot_.StepBegin(160);
  EXPECT_EQ(hot_.StepEnd(170), 0);
}

TEST_F(HotPathTest, AnAssignmentBeginsAtItsStepAndANewerOneReplacesIt) {
  tables_.Offer(PlanOfFour(1, 0));
  hot_.StepBegin(0);  // 0
  tables_.Offer(PlanOfFour(2, 2));
  hot_.StepBegin(1);  // 1
  EXPECT_EQ(counters_.version.load(), 1);
  EXPECT_FALSE(tables_.IsWaiting());
  tables_.Offer(PlanOfFour(3, 3));
  hot_.StepBegin(2);  // 2
  EXPECT_EQ(counters_.version.load(), 2);
  tables_.Offer(PlanOfFour(4, 1));  // Newer than version 3, and it begins earlier.
  hot_.StepBegin(3);                // 3
  EXPECT_EQ(counters_.version.load(), 4);
  tables_.Offer(std::make_unique<ClockTable>());
  EXPECT_EQ(hot_.StepBegin(4), 0);
  EXPECT_FALSE(counters_.follows_plan.load());
  hot_.StepEnd(5);
  EXPECT_THAT(Events().back().on_plan, true);
}

TEST_F(HotPathTest, AnOwnPlanKeepsAssignmentsThatBeginLater) {
  tables_.Offer(PlanOfFour(7, 3));
  BeginStepWithAnInstruction(0);  // 0
  hot_.Follow(PlanOfFour(0));
  auto faster = PlanOfFour(0);
  faster->order[0].frequency_mhz = 1300;
  hot_.Follow(std::move(faster));
  EXPECT_EQ(BeginStepWithAnInstruction(1), 1300);  // 1
  EXPECT_EQ(counters_.version.load(), 0);
  BeginStepWithAnInstruction(2);  // 2
  EXPECT_EQ(counters_.version.load(), 0);
  EXPECT_EQ(BeginStepWithAnInstruction(3), 1000);  // 3
  EXPECT_EQ(counters_.version.load(), 7);
}

TEST_F(HotPathTest, ATemporaryAssignmentEndsAtItsLastStep) {
  tables_.Offer(PlanOfFour(1, 0));
  hot_.StepBegin(0);  // 0
  auto sweep = std::make_unique<ClockTable>();
  sweep->source = ClockTable::Source::kKinds;
  sweep->kind_clocks = {700, 700, 0, 0, 0};
  sweep->version = 2;
  sweep->from_step = 1;
  sweep->until_step = 3;
  tables_.Offer(std::move(sweep));
  hot_.StepBegin(1);  // 1
  EXPECT_EQ(counters_.version.load(), 2);
  hot_.StepBegin(2);  // 2
  EXPECT_THAT(Run({{kF, 0, 0}}), ElementsAre(700, kNoChange));
  EXPECT_EQ(hot_.StepBegin(3), 1000);  // 3: the lasting assignment.
  EXPECT_EQ(counters_.version.load(), 1);
}

TEST_F(HotPathTest, TheOwnPlanIsFollowedIfTheAssignmentSaysSo) {
  auto own = PlanOfFour(0, 0);
  hot_.Follow(std::move(own));
  EXPECT_EQ(BeginStepWithAnInstruction(0), 1000);
  EXPECT_EQ(counters_.version.load(), 0);
  // The baseline of a verification.
  auto none = std::make_unique<ClockTable>();
  none->version = 1;
  none->until_step = 2;
  tables_.Offer(std::move(none));
  EXPECT_EQ(BeginStepWithAnInstruction(1), 0);     // 1
  EXPECT_EQ(BeginStepWithAnInstruction(2), 1000);  // 2: no assignment is in force.
  auto other = std::make_unique<ClockTable>();
  other->version = 2;
  tables_.Offer(std::move(other));
  EXPECT_EQ(BeginStepWithAnInstruction(3), 0);  // 3
  auto back = std::make_unique<ClockTable>();
  back->source = ClockTable::Source::kOwn;
  back->version = 3;
  tables_.Offer(std::move(back));
  EXPECT_EQ(BeginStepWithAnInstruction(4), 1000);  // 4
  EXPECT_EQ(counters_.version.load(), 3);
  EXPECT_TRUE(counters_.follows_plan.load());
}

TEST_F(HotPathTest, AnExpiredPlanEndsAtTheBeginOfAStep) {
  auto table = PlanOfFour();
  table->expires = 1000;
  tables_.Offer(std::move(table));
  EXPECT_EQ(hot_.StepBegin(999), 1000);
  EXPECT_EQ(hot_.StepBegin(1000), 0);
  EXPECT_FALSE(counters_.follows_plan.load());
  EXPECT_TRUE(trouble_.has_expired.load());
}

TEST_F(HotPathTest, AnOpenStepEndsAtTheBeginOfTheNext) {
  hot_.StepBegin(10);
  hot_.InstructionBegin({kF, 0, 0}, 11);
  hot_.StepBegin(20);
  const auto events = Events();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[1].type, Event::Type::kStepEnd);
  EXPECT_EQ(events[1].begin, 20);
  EXPECT_EQ(events[2].step, 1);
}

TEST_F(HotPathTest, EndsWithoutABeginDoNothing) {
  EXPECT_EQ(hot_.StepEnd(1), kNoChange);
  EXPECT_EQ(hot_.InstructionEnd(1), kNoChange);
  EXPECT_TRUE(Events().empty());
}

TEST_F(HotPathTest, AFullBufferHasRoomForTheEndOfTheStep) {
  hot_.StepBegin(0);
  for (int i = 0; i < 20; ++i) Run({{kF, i, 0}});
  hot_.StepEnd(100);
  hot_.StepBegin(101);  // No room: not recorded.
  hot_.StepEnd(102);
  const auto events = Events();
  ASSERT_EQ(events.size(), 16U);
  EXPECT_EQ(events.back().type, Event::Type::kStepEnd);
  EXPECT_FALSE(events.back().is_whole);
  EXPECT_EQ(counters_.records_dropped.load(), 6U);  // 20 - (16 - begin and end)
  EXPECT_TRUE(trouble_.is_full.load());
  hot_.StepBegin(103);
  EXPECT_EQ(Events().size(), 1U);
}

TEST_F(HotPathTest, APairOfEventsThatIsNotRecordedIsReturned) {
  EXPECT_FALSE(hot_.InstructionEndOn(1).is_taken);  // No step, no instruction.
  hot_.StepBegin(0);
  hot_.InstructionBegin({kF, 0, 0}, 1);
  hot_.StepEnd(2);
  EXPECT_FALSE(hot_.InstructionEndOn(2).is_taken);
  hot_.StepBegin(3);
  for (int i = 0; i < 16; ++i) Run({{kF, i, 0}});
  hot_.InstructionBegin({kF, 16, 0}, 50);
  EXPECT_FALSE(hot_.InstructionEndOn(3).is_taken);  // Full.
  hot_.StepBegin(60);                               // No room: not recorded.
  hot_.InstructionBegin({kF, 0, 0}, 61);
  EXPECT_FALSE(hot_.InstructionEndOn(4).is_taken);
}

TEST_F(HotPathTest, AStreamInstructionWithoutTimesMakesItsStepIncomplete) {
  hot_.StepBegin(0);
  hot_.InstructionBegin({kF, 0, 0}, 1);
  EXPECT_TRUE(hot_.InstructionEndOn(7).is_taken);
  hot_.InstructionBegin({kF, 1, 0}, 2);
  EXPECT_FALSE(hot_.InstructionEndOn(HotPath::kNoTimes).is_taken);
  hot_.StepEnd(9);
  const auto events = Events();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[1].timing, 7);
  EXPECT_FALSE(events[2].is_whole);
}

}  // namespace
}  // namespace perseus::client
