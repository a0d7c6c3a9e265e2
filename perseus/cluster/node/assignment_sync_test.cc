#include "perseus/cluster/node/assignment_sync.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "perseus/cluster/node/tiny_plan.h"
#include "perseus/runtime/protocol/assignment_writer.h"
#include "tests/support/temporary_directory.h"

namespace perseus::node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kAssignmentSyncPlanA = "p-00000000000000aa";
constexpr const char* kAssignmentSyncPlanB = "p-00000000000000bb";

JobAssignment Version(std::int64_t version) {
  return {"j-1", "run", version, 120, {{0, kAssignmentSyncPlanA}}, ""};
}

TEST(AssignmentOfAJob, NameEachPipelinesPlan) {
  const protocol::Assignment assignment =
      AssignmentOf({"j-1",
                    "run",
                    7,
                    120,
                    {{0, kAssignmentSyncPlanA}, {1, kAssignmentSyncPlanB}},
                    "straggler 1: 1.25"});
  EXPECT_EQ(assignment.PlanOf(0), "plans/p-00000000000000aa.json");
  EXPECT_EQ(assignment.PlanOf(1), "plans/p-00000000000000bb.json");
  EXPECT_EQ(assignment.PlanOf(2), "");
  EXPECT_EQ(assignment.server, (protocol::ServerOrigin{"j-1", 7}));
  EXPECT_TRUE(assignment.record);
}

TEST(FromStep, IsTheServersUnlessThatHasBegun) {
  EXPECT_EQ(FromStep(120, {}), 120);  // Nobody has begun.
  EXPECT_EQ(FromStep(120, {100, 1'000'000'000}), 120);
  EXPECT_EQ(FromStep(102, {100, 1'000'000'000}), 102);
  // Step 101 runs: what can still be read in time is the one after the next.
  EXPECT_EQ(FromStep(101, {100, 1'000'000'000}), 103);
  EXPECT_EQ(FromStep(50, {100, 1'000'000'000}), 103);
  // Ten steps of 10 ms go by until ranks have looked.
  EXPECT_EQ(FromStep(50, {100, 10'000'000}), 112);
  EXPECT_EQ(FromStep(50, {100, std::nullopt}), 103);
}

class AssignmentSyncTest : public testing::Test {
 protected:
  void Look() {
    const auto looked = keeper_.Look();
    EXPECT_TRUE(looked) << looked.error().message;
  }
  // As the node does.
  bool Give(const JobProgress& progress = {}) {
    Look();
    if (!keeper_.HasToGive()) return false;
    for (const std::string& id : keeper_.MissingPlans()) {
      EXPECT_TRUE(keeper_.KeepPlan(id, TinyPlan()));
    }
    const auto given = keeper_.Give(progress);
    EXPECT_TRUE(given) << given.error().message;
    return true;
  }
  protocol::Assignment InForce() const { return **protocol::ReadAssignment(directory_.path()); }

  TemporaryDirectory directory_;
  AssignmentSync keeper_{directory_.path()};
};

TEST_F(AssignmentSyncTest, GivesWhatIsWantedOnce) {
  EXPECT_FALSE(Give());
  keeper_.Want(Version(7));
  EXPECT_THAT(keeper_.MissingPlans(), ElementsAre(kAssignmentSyncPlanA));
  EXPECT_TRUE(Give());
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kAssignmentSyncPlanA));
  EXPECT_EQ(InForce().from_step, 120);
  EXPECT_EQ(keeper_.in_force(), (protocol::ServerOrigin{"j-1", 7}));
  EXPECT_EQ(keeper_.ServerVersionOf(InForce().version), 7);
  EXPECT_FALSE(Give());
  keeper_.Want(Version(7));
  keeper_.Want(Version(6));
  EXPECT_FALSE(Give());
  JobAssignment none = Version(8);
  none.plans.clear();
  keeper_.Want(none);
  EXPECT_TRUE(Give());
  EXPECT_EQ(InForce().PlanOf(0), "");
  EXPECT_FALSE(InForce().own);
}

TEST_F(AssignmentSyncTest, TheSameAssignmentComeAgainForRanksOfAnotherPipeline) {
  keeper_.SetRanks({{0, {0}}});
  keeper_.Want(Version(7));
  EXPECT_TRUE(Give());
  EXPECT_TRUE(keeper_.NamesPlansOfAll());
  keeper_.SetRanks({{0, {0}}, {1, {0}}});
  EXPECT_FALSE(keeper_.NamesPlansOfAll());
  JobAssignment both = Version(7);
  both.plans[1] = kAssignmentSyncPlanB;
  keeper_.Want(both);
  EXPECT_TRUE(keeper_.NamesPlansOfAll());
  EXPECT_THAT(keeper_.MissingPlans(), ElementsAre(kAssignmentSyncPlanB));
  EXPECT_TRUE(Give());
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kAssignmentSyncPlanA));
  EXPECT_EQ(InForce().PlanOf(1), PlanPath(kAssignmentSyncPlanB));
  keeper_.Want(Version(7));
  EXPECT_FALSE(Give()) << "fewer change nothing";
}

TEST_F(AssignmentSyncTest, WhatIsNoPlanIsNotKept) {
  const auto kept = keeper_.KeepPlan(kAssignmentSyncPlanA, "<html>");
  ASSERT_FALSE(kept);
  EXPECT_THAT(kept.error().message, HasSubstr(kAssignmentSyncPlanA));
  EXPECT_FALSE(keeper_.HasPlan(kAssignmentSyncPlanA));
}

TEST_F(AssignmentSyncTest, ANewProcessKnowsWhatTheDirectoryHas) {
  keeper_.Want(Version(7));
  Give();
  AssignmentSync next(directory_.path());
  ASSERT_TRUE(next.Look());
  EXPECT_EQ(next.newest(), (protocol::ServerOrigin{"j-1", 7}));
  EXPECT_EQ(next.ServerVersionOf(InForce().version), 7);
  next.Want(Version(7));
  EXPECT_FALSE(next.HasToGive());
  next.Want(Version(8));
  EXPECT_TRUE(next.HasToGive());
}

TEST_F(AssignmentSyncTest, WaitsForAVerificationAndKnowsWhatItPutsBack) {
  keeper_.Want(Version(7));
  Give();
  {
    auto verification = protocol::AssignmentWriter::Open(directory_.path());
    protocol::Assignment baseline;
    baseline.until_step = 200;
    ASSERT_TRUE(verification->Give(baseline, 150));
    Look();
    EXPECT_EQ(keeper_.in_force(), (protocol::ServerOrigin{"j-1", 7}));
    EXPECT_EQ(keeper_.ServerVersionOf(InForce().version), 0);
    EXPECT_FALSE(keeper_.HasToGive());
    keeper_.Want(Version(8));
    const auto given = keeper_.Give({});
    ASSERT_FALSE(given);
    EXPECT_THAT(given.error().message, HasSubstr("another perseus gives this job its assignment"));
    ASSERT_TRUE(verification->GiveBack());
  }
  Look();
  EXPECT_EQ(keeper_.ServerVersionOf(InForce().version), 7);
  EXPECT_TRUE(Give({300, 1'000'000'000}));
  EXPECT_EQ(keeper_.in_force(), (protocol::ServerOrigin{"j-1", 8}));
  EXPECT_EQ(InForce().from_step, 303);
}

TEST_F(AssignmentSyncTest, TheServersAssignmentComeBackAfterATune) {
  keeper_.Want(Version(7));
  Give();
  {
    auto tune = protocol::AssignmentWriter::Open(directory_.path());
    protocol::Assignment plan;
    plan.plan = "plans/tuned.json";
    ASSERT_TRUE(tune->Give(plan, 0));
  }
  EXPECT_TRUE(Give());
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kAssignmentSyncPlanA));
}

TEST_F(AssignmentSyncTest, AJobThatBeginsAnewFollowsFromItsFirstStepOn) {
  keeper_.Want(Version(7));
  keeper_.BeginAnew();  // Before it had any assignment: those of the server count.
  EXPECT_TRUE(Give());
  EXPECT_EQ(InForce().from_step, 120);
  EXPECT_FALSE(Give());
  keeper_.BeginAnew();
  EXPECT_TRUE(Give());
  EXPECT_EQ(InForce().from_step, 0);
  EXPECT_EQ(keeper_.ServerVersionOf(InForce().version), 7);
  keeper_.BeginAnew();
  EXPECT_FALSE(Give());
}

TEST_F(AssignmentSyncTest, AJobThatEndedHasNoneOfTheServersAssignment) {
  keeper_.Want(Version(7));
  Give();
  keeper_.WantNothing();
  EXPECT_TRUE(Give());
  EXPECT_TRUE(InForce().own);
  EXPECT_FALSE(keeper_.in_force());
  EXPECT_FALSE(Give());
  // Another job in the same directory, whose versions count from 1.
  JobAssignment other = Version(1);
  other.job = "j-2";
  keeper_.Want(other);
  EXPECT_TRUE(Give());
  EXPECT_EQ(keeper_.in_force(), (protocol::ServerOrigin{"j-2", 1}));
}

TEST_F(AssignmentSyncTest, PlansThatNobodyNeedsAnyMoreAreDeleted) {
  const auto plan = [](int i) { return fmt::format("p-{:016x}", i); };
  const auto is_there = [&](const std::string& id) {
    return std::filesystem::exists(directory_ / PlanPath(id));
  };
  const auto order = [&](int version, const std::string& id) {
    JobAssignment assignment = Version(version);
    assignment.plans = {{0, id}};
    assignment.upcoming = {plan(100)};
    keeper_.Want(assignment);
    EXPECT_TRUE(Give());
  };
  order(1, plan(1));
  ASSERT_TRUE(keeper_.KeepPlan(plan(100), TinyPlan()));
  std::ofstream(directory_ / "plans/tuned.json") << TinyPlan();
  std::ofstream(directory_ / "plans/p-tuned.json") << TinyPlan();
  order(2, plan(2));
  EXPECT_TRUE(is_there(plan(1))) << "a rank may be about to read it";
  order(3, plan(3));
  EXPECT_FALSE(is_there(plan(1)));
  EXPECT_TRUE(is_there(plan(2)));
  EXPECT_TRUE(is_there(plan(100))) << "it is likely to be next";
  EXPECT_TRUE(std::filesystem::exists(directory_ / "plans/tuned.json"));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "plans/p-tuned.json"));
  keeper_.WantNothing();
  EXPECT_TRUE(Give());
  EXPECT_TRUE(is_there(plan(3)));
  EXPECT_FALSE(is_there(plan(2)));
  // What was deleted is wanted again.
  JobAssignment again = Version(4);
  again.plans = {{0, plan(1)}};
  keeper_.Want(again);
  EXPECT_THAT(keeper_.MissingPlans(), ElementsAre(plan(1)));
}

TEST_F(AssignmentSyncTest, AssignmentOfOthersAreLeftAloneWhereTheJobEnds) {
  protocol::Assignment plan;
  plan.plan = "plans/tuned.json";
  ASSERT_TRUE(protocol::WriteAssignment(directory_.path(), plan));
  keeper_.WantNothing();
  EXPECT_FALSE(Give());
}

TEST_F(AssignmentSyncTest, VersionsOfAnEarlierJobAreNoneOfThisOne) {
  keeper_.Want(Version(7));
  Give();
  const std::int64_t before = InForce().version;
  JobAssignment other = Version(1);
  other.job = "j-2";
  keeper_.Want(other);
  EXPECT_EQ(keeper_.ServerVersionOf(before), 0);
}

}  // namespace
}  // namespace perseus::node
