// Which clocks one rank follows under plans and assignments.
#include "perseus/runtime/client/clock_table.h"

#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/planned_pipeline.h"
#include "tests/support/results.h"

namespace perseus::client {
namespace {

using ::testing::HasSubstr;

plan_file::PlanFile PlanTwoRanks() {
  return PlanPipeline({.name = "1f1b", .pp_ranks = 2, .microbatches = 3});
}

TEST(CompilePlan, HasTheInstructionsOfThePpRankInOrder) {
  const plan_file::PlanFile plan = PlanTwoRanks();
  for (int rank = 0; rank < 2; ++rank) {
    const auto table = ValueOf(CompilePlan(plan_file::FormatPlan(plan), "plan.json", rank));
    const auto& instructions = plan.pp_ranks[static_cast<std::size_t>(rank)].instructions;
    ASSERT_EQ(table.order.size(), instructions.size());
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      EXPECT_EQ(table.order[i].kind, instructions[i].kind);
      EXPECT_EQ(table.order[i].microbatch, instructions[i].microbatch);
      EXPECT_EQ(table.order[i].chunk, instructions[i].chunk);
      EXPECT_EQ(table.order[i].frequency_mhz, static_cast<int>(instructions[i].frequency_mhz));
      EXPECT_GT(table.order[i].frequency_mhz, 0);
    }
    EXPECT_DOUBLE_EQ(table.slowdown,
                     static_cast<double>(plan.time) / static_cast<double>(plan.baseline_time));
    EXPECT_GT(table.slowdown, 1);
  }
}

TEST(CompilePlan, OfAFileThatIsCutDownToOthersThereIsNothingToFollow) {
  plan_file::PlanFile plan = PlanTwoRanks();
  plan.pp_ranks[1].is_cut = true;
  plan.pp_ranks[1].instructions.resize(1);
  EXPECT_EQ(ValueOf(CompilePlan(plan_file::FormatPlan(plan), "plan.json", 1)).source,
            ClockTable::Source::kNone);
  EXPECT_EQ(CompilePlan(plan_file::FormatPlan(plan), "plan.json", 0)->source,
            ClockTable::Source::kPlan);
}

TEST(CompilePlan, TheClockReturnsBeforeTheOptimizerHasEnded) {
  plan_file::PlanFile plan = PlanTwoRanks();
  plan.job.switch_latency = 2 * kMillisecond;
  const auto table_of = [&] {
    return ValueOf(CompilePlan(plan_file::FormatPlan(plan), "plan.json", 0));
  };
  EXPECT_EQ(table_of().lead, 0) << "a pipeline waits at the end of a step";
  auto& instructions = plan.pp_ranks[0].instructions;
  const int first_mhz = instructions.front().frequency_mhz;
  plan_file::PlannedInstruction& last = instructions.back();
  last.kind = InstructionKind::kOptimizerStep;
  last.frequency_mhz = first_mhz - 15;
  last.duration = 20 * kMillisecond;
  EXPECT_EQ(table_of().lead, 3 * kMillisecond);
  EXPECT_EQ(table_of().last_duration, 20 * kMillisecond);
  EXPECT_EQ(table_of().order.back().frequency_mhz, first_mhz - 15);
  last.duration = 3 * kMillisecond;
  EXPECT_EQ(table_of().lead, 0);
  EXPECT_EQ(table_of().order.back().frequency_mhz, first_mhz) << "too short for a lower clock";
}

TEST(CompilePlan, SaysWhatIsWrong) {
  EXPECT_THAT(
      CompilePlan(plan_file::FormatPlan(PlanTwoRanks()), "plan.json", 2),
      FailsWith(
          "plan.json: the plan has ranks 0 to 1, and this is rank 2 (plan for this job's ranks)"));
  EXPECT_FALSE(CompilePlan(plan_file::FormatPlan(PlanTwoRanks()), "plan.json", -1));
  EXPECT_TRUE(CompilePlan(plan_file::FormatPlan(PlanTwoRanks()), "plan.json", 0, 2));
  EXPECT_THAT(
      CompilePlan(plan_file::FormatPlan(PlanTwoRanks()), "plan.json", 0, 4),
      FailsWith("plan.json: the plan has 2 pp_ranks, and this job has 4 (plan for this job)"));
  EXPECT_THAT(CompilePlan("{", "plan.json", 0), FailsWith(HasSubstr("plan.json")));
}

TEST(CompileClocks, AreThoseOfTheRank) {
  const std::vector<protocol::KindClock> clocks = {{0, 0, InstructionKind::kForward, 1410},
                                                   {1, 0, InstructionKind::kForward, 900},
                                                   {1, 1, InstructionKind::kBackwardWeight, 1005},
                                                   {1, 0, InstructionKind::kOptimizer, 300}};
  const ClockTable table = CompileClocks(clocks, 1);
  EXPECT_EQ(table.ClockOf(InstructionKind::kForward, 0), 900);
  EXPECT_EQ(table.ClockOf(InstructionKind::kForward, 1), 0);
  EXPECT_EQ(table.ClockOf(InstructionKind::kBackwardWeight, 1), 1005);
  EXPECT_EQ(table.ClockOf(InstructionKind::kRecompute, 0), 0);
  EXPECT_EQ(table.ClockOf(InstructionKind::kForward, 2), 0);
  EXPECT_EQ(table.ClockOf(InstructionKind::kForward, 1 << 30), 0);
}

TEST(NearestFaster, NeverIsSlowerButAtTheTop) {
  const std::vector<int> clocks = {900, 1005, 1410};
  EXPECT_EQ(NearestFaster(clocks, 0), 0);
  EXPECT_EQ(NearestFaster(clocks, 1), 900);
  EXPECT_EQ(NearestFaster(clocks, 900), 900);
  EXPECT_EQ(NearestFaster(clocks, 901), 1005);
  EXPECT_EQ(NearestFaster(clocks, 1411), 1410);
  EXPECT_EQ(NearestFaster({}, 901), 901);
}

constexpr std::int64_t kDefaultClocks = -1;
constexpr std::int64_t kOwnPlan = 1000;

std::unique_ptr<ClockTable> PrecedenceTable(std::int64_t version, std::int64_t from_step = 0,
                                            std::int64_t until_step = 0) {
  auto table = std::make_unique<ClockTable>();
  table->source = ClockTable::Source::kPlan;
  table->version = version;
  table->from_step = from_step;
  table->until_step = until_step;
  return table;
}

class ClockPrecedenceTest : public testing::Test {
 protected:
  // The version of the table that the step follows.
  std::int64_t Step(std::int64_t step, Nanoseconds now = 0) {
    change_ = precedence_.BeginStep(step, now);
    return precedence_.table() == nullptr ? kDefaultClocks : precedence_.table()->version;
  }
  std::int64_t Assignment() const {
    return precedence_.assignment() == nullptr ? 0 : precedence_.assignment()->version;
  }
  void Assign(std::int64_t version, std::int64_t from_step = 0, std::int64_t until_step = 0) {
    tables_.Offer(PrecedenceTable(version, from_step, until_step));
  }
  void AssignOwn(std::int64_t version, std::int64_t until_step = 0) {
    auto table = PrecedenceTable(version, 0, until_step);
    table->source = ClockTable::Source::kOwn;
    tables_.Offer(std::move(table));
  }

  Handover<ClockTable> tables_;
  ClockPrecedence precedence_{tables_};
  ClockPrecedence::Change change_ = ClockPrecedence::Change::kNone;
};

TEST_F(ClockPrecedenceTest, WithoutTablesTheDefaultClocksAreInForce) {
  EXPECT_EQ(Step(0), kDefaultClocks);
  EXPECT_EQ(Assignment(), 0);
}

TEST_F(ClockPrecedenceTest, ATemporaryAssignmentHidesTheLastingOneUntilItEnds) {
  Assign(1);
  EXPECT_EQ(Step(0), 1);
  Assign(2, 1, 3);
  EXPECT_EQ(Step(1), 2);
  EXPECT_EQ(Assignment(), 2);
  EXPECT_EQ(Step(2), 2);
  EXPECT_EQ(Step(3), 1);
  EXPECT_EQ(Assignment(), 1);
}

TEST_F(ClockPrecedenceTest, ALastingAssignmentEndsTheTemporaryOne) {
  Assign(1, 0, 10);
  EXPECT_EQ(Step(0), 1);
  Assign(2);
  EXPECT_EQ(Step(1), 2);
}

TEST_F(ClockPrecedenceTest, ATemporaryAssignmentReplacesTheTemporaryOneOnly) {
  Assign(1);
  Step(0);
  Assign(2, 0, 10);
  Step(1);
  Assign(3, 0, 4);
  EXPECT_EQ(Step(2), 3);
  EXPECT_EQ(Step(4), 1) << "assignment 2 is gone";
}

TEST_F(ClockPrecedenceTest, ATemporaryAssignmentThatIsAlreadyOverIsSkipped) {
  Assign(1);
  Step(0);
  Assign(2, 1, 3);
  EXPECT_EQ(Step(5), 1);
}

TEST_F(ClockPrecedenceTest, AnAssignmentWaitsForItsFirstStep) {
  Assign(1, 2);
  EXPECT_EQ(Step(0), kDefaultClocks);
  EXPECT_EQ(Step(1), kDefaultClocks);
  EXPECT_EQ(Step(2), 1);
}

TEST_F(ClockPrecedenceTest, SeveralAssignmentsWait) {
  for (const std::int64_t version : {1, 2, 3}) {
    Assign(version, 10 * version);
    Step(version);
  }
  EXPECT_EQ(Step(10), 1);
  EXPECT_EQ(Step(20), 2);
  EXPECT_EQ(Step(30), 3);
}

TEST_F(ClockPrecedenceTest, ANewerAssignmentDiscardsThoseThatDoNotBeginEarlier) {
  for (const std::int64_t version : {1, 2, 3}) {
    Assign(version, 10 * version);
    Step(version);
  }
  Assign(4, 20);
  Step(4);
  EXPECT_EQ(Step(10), 1);
  EXPECT_EQ(Step(20), 4);
  EXPECT_EQ(Step(30), 4);
}

TEST_F(ClockPrecedenceTest, OfSeveralAssignmentsThatAreDueTheLastOneCounts) {
  Assign(1, 10);
  Step(0);
  Assign(2, 11);
  Step(1);
  EXPECT_EQ(Step(12), 2);
}

TEST_F(ClockPrecedenceTest, AnyAssignmentHidesTheOwnPlanUnlessItSaysOwn) {
  precedence_.SetOwn(PrecedenceTable(kOwnPlan));
  EXPECT_EQ(Step(0), kOwnPlan);
  EXPECT_EQ(Assignment(), 0);
  Assign(1);
  EXPECT_EQ(Step(1), 1);
  AssignOwn(2);
  EXPECT_EQ(Step(2), kOwnPlan);
  EXPECT_EQ(Assignment(), 2);
}

TEST_F(ClockPrecedenceTest, OwnWithoutAPlanMeansTheDefaultClocks) {
  AssignOwn(1);
  EXPECT_EQ(Step(0), kDefaultClocks);
  EXPECT_EQ(Assignment(), 1);
}

TEST_F(ClockPrecedenceTest, ATemporaryAssignmentMaySayOwn) {
  precedence_.SetOwn(PrecedenceTable(kOwnPlan));
  Step(0);
  Assign(1);
  Step(1);
  AssignOwn(2, 4);
  EXPECT_EQ(Step(2), kOwnPlan);
  EXPECT_EQ(Step(4), 1);
}

TEST_F(ClockPrecedenceTest, ANewOwnPlanReplacesTheAssignmentsInForceAtTheNextStep) {
  Assign(1);
  Step(0);
  Assign(2, 0, 10);
  Step(1);
  precedence_.SetOwn(PrecedenceTable(kOwnPlan));
  EXPECT_EQ(precedence_.table()->version, 2) << "the current step does not change";
  EXPECT_EQ(Step(2), kOwnPlan);
  EXPECT_EQ(Step(10), kOwnPlan);
}

TEST_F(ClockPrecedenceTest, OfTwoOwnPlansTheLastOneCounts) {
  precedence_.SetOwn(PrecedenceTable(kOwnPlan));
  precedence_.SetOwn(PrecedenceTable(kOwnPlan + 1));
  EXPECT_EQ(Step(0), kOwnPlan + 1);
}

TEST_F(ClockPrecedenceTest, ANewOwnPlanKeepsAssignmentsThatBeginLater) {
  Assign(1, 3);
  Step(0);
  precedence_.SetOwn(PrecedenceTable(kOwnPlan));
  EXPECT_EQ(Step(1), kOwnPlan);
  EXPECT_EQ(Step(3), 1);
}

TEST_F(ClockPrecedenceTest, AnExpiredOwnPlanIsDropped) {
  auto own = PrecedenceTable(kOwnPlan);
  own->expires = 500;
  precedence_.SetOwn(std::move(own));
  EXPECT_EQ(Step(0, 499), kOwnPlan);
  EXPECT_EQ(change_, ClockPrecedence::Change::kNone);
  EXPECT_EQ(Step(1, 500), kDefaultClocks);
  EXPECT_EQ(change_, ClockPrecedence::Change::kExpired);
  EXPECT_EQ(Step(2, 501), kDefaultClocks);
  EXPECT_EQ(change_, ClockPrecedence::Change::kNone);
}

TEST_F(ClockPrecedenceTest, AHiddenOwnPlanExpiresWhenItIsInForceAgain) {
  auto own = PrecedenceTable(kOwnPlan);
  own->expires = 500;
  precedence_.SetOwn(std::move(own));
  Step(0, 0);
  Assign(1, 0, 2);
  EXPECT_EQ(Step(1, 600), 1);
  EXPECT_EQ(change_, ClockPrecedence::Change::kNone);
  EXPECT_EQ(Step(2, 700), kDefaultClocks);
  EXPECT_EQ(change_, ClockPrecedence::Change::kExpired);
}

TEST_F(ClockPrecedenceTest, AnExpiredAssignmentIsDroppedAndTheNextStepFollowsTheOwnPlan) {
  precedence_.SetOwn(PrecedenceTable(kOwnPlan));
  Step(0);
  auto assigned = PrecedenceTable(1);
  assigned->expires = 500;
  tables_.Offer(std::move(assigned));
  EXPECT_EQ(Step(1, 100), 1);
  EXPECT_EQ(Step(2, 500), kDefaultClocks);
  EXPECT_EQ(Assignment(), 0);
  EXPECT_EQ(Step(3, 501), kOwnPlan);
}

// The thread sanitizer finds what is not guarded.
TEST_F(ClockPrecedenceTest, AnotherThreadMaySetTheOwnPlan) {
  constexpr std::int64_t kPlans = 1000;
  std::atomic<bool> is_done = false;
  std::thread other([&] {
    for (std::int64_t i = 1; i <= kPlans; ++i) {
      precedence_.SetOwn(PrecedenceTable(i));
      tables_.FreeRetired();
    }
    is_done.store(true);
  });
  std::int64_t last = kDefaultClocks;
  std::int64_t step = 0;
  while (!is_done.load()) {
    const std::int64_t followed = Step(step++);
    EXPECT_GE(followed, last);
    last = followed;
  }
  other.join();
  EXPECT_EQ(Step(step), kPlans);
}

// Which tables the other thread gets to free. A leak or a double free fails under the sanitizers.
TEST(ClockPrecedenceOwnership, EveryTableReturnsToTheHandoverOnce) {
  Handover<ClockTable> tables;
  {
    ClockPrecedence precedence(tables);
    precedence.SetOwn(PrecedenceTable(kOwnPlan));
    precedence.BeginStep(0, 0);
    precedence.SetOwn(PrecedenceTable(kOwnPlan + 1));
    for (std::int64_t version = 1; version <= 6; ++version) {
      tables.Offer(PrecedenceTable(version, version % 2 == 0 ? 100 : version, version % 3));
      precedence.BeginStep(version, 0);
      tables.FreeRetired();
      ASSERT_NE(precedence.table(), nullptr);
      EXPECT_GT(precedence.table()->version, 0) << "the table in force is not freed";
    }
  }
  tables.FreeRetired();
}

}  // namespace
}  // namespace perseus::client
