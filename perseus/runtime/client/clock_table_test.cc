// From plans and assignment to what one rank does.
#include "perseus/runtime/client/clock_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/planned_pipeline.h"

namespace perseus::client {
namespace {

using ::testing::HasSubstr;

plan_file::PlanFile PlanTwoRanks() {
  return PlanPipeline({.name = "1f1b", .pp_ranks = 2, .microbatches = 3});
}

TEST(CompilePlan, HasTheInstructionsOfThePpRankInOrder) {
  const plan_file::PlanFile plan = PlanTwoRanks();
  for (int rank = 0; rank < 2; ++rank) {
    const auto table = CompilePlan(plan_file::FormatPlan(plan), "plan.json", rank);
    ASSERT_TRUE(table) << table.error().message;
    const auto& instructions = plan.pp_ranks[static_cast<std::size_t>(rank)].instructions;
    ASSERT_EQ(table->order.size(), instructions.size());
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      EXPECT_EQ(table->order[i].kind, instructions[i].kind);
      EXPECT_EQ(table->order[i].microbatch, instructions[i].microbatch);
      EXPECT_EQ(table->order[i].chunk, instructions[i].chunk);
      EXPECT_EQ(table->order[i].frequency_mhz, static_cast<int>(instructions[i].frequency_mhz));
      EXPECT_GT(table->order[i].frequency_mhz, 0);
    }
    EXPECT_DOUBLE_EQ(table->slowdown,
                     static_cast<double>(plan.time) / static_cast<double>(plan.baseline_time));
    EXPECT_GT(table->slowdown, 1);
  }
}

TEST(CompilePlan, TakesTheFasterOfTwoWholeClocks) {
  plan_file::PlanFile plan = PlanTwoRanks();
  plan.pp_ranks[0].instructions[0].frequency_mhz = 1200.5;
  const auto table = CompilePlan(plan_file::FormatPlan(plan), "plan.json", 0);
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->order[0].frequency_mhz, 1201);
}

TEST(CompilePlan, OfAFileThatIsCutDownToOthersThereIsNothingToFollow) {
  plan_file::PlanFile plan = PlanTwoRanks();
  plan.pp_ranks[1].is_cut = true;
  plan.pp_ranks[1].instructions.resize(1);
  const auto table = CompilePlan(plan_file::FormatPlan(plan), "plan.json", 1);
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->source, ClockTable::Source::kNone);
  EXPECT_EQ(CompilePlan(plan_file::FormatPlan(plan), "plan.json", 0)->source,
            ClockTable::Source::kPlan);
}

TEST(CompilePlan, SaysWhatIsWrong) {
  const auto no_such_rank = CompilePlan(plan_file::FormatPlan(PlanTwoRanks()), "plan.json", 2);
  ASSERT_FALSE(no_such_rank);
  EXPECT_EQ(no_such_rank.error().message,
            "plan.json: the plan has ranks 0 to 1, and this is rank 2 (plan for this job's ranks)");
  EXPECT_FALSE(CompilePlan(plan_file::FormatPlan(PlanTwoRanks()), "plan.json", -1));
  EXPECT_TRUE(CompilePlan(plan_file::FormatPlan(PlanTwoRanks()), "plan.json", 0, 2));
  const auto other_job = CompilePlan(plan_file::FormatPlan(PlanTwoRanks()), "plan.json", 0, 4);
  ASSERT_FALSE(other_job);
  EXPECT_EQ(other_job.error().message,
            "plan.json: the plan has 2 pp_ranks, and this job has 4 (plan for this job)");
  const auto no_plan = CompilePlan("{", "plan.json", 0);
  ASSERT_FALSE(no_plan);
  EXPECT_THAT(no_plan.error().message, HasSubstr("plan.json"));
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

}  // namespace
}  // namespace perseus::client
