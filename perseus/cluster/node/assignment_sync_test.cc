#include "perseus/cluster/node/assignment_sync.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "tests/support/results.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_plan.h"

namespace perseus::node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

protocol::AssignmentEvent Version(std::int64_t version) {
  return {"j-1", "run", version, 120, {{0, kPlanA}}, ""};
}

protocol::Assignment Tuned() {
  protocol::Assignment tuned;
  tuned.plan = "plans/tuned.json";
  return tuned;
}

TEST(AssignmentOf, NamesThePlanOfEachPipeline) {
  const protocol::Assignment assignment =
      AssignmentOf({"j-1", "run", 7, 120, {{0, kPlanA}, {1, kPlanB}}, "straggler 1: 25.00 %"});
  EXPECT_EQ(assignment.PlanOf(0), "plans/p-00000000000000aa.json");
  EXPECT_EQ(assignment.PlanOf(1), "plans/p-00000000000000bb.json");
  EXPECT_EQ(assignment.PlanOf(2), "");
  EXPECT_EQ(assignment.server, (protocol::ServerOrigin{"j-1", 7}));
  EXPECT_TRUE(assignment.record);
}

TEST(FromStep, IsTheStepOfTheServerUnlessItHasBegun) {
  EXPECT_EQ(FromStep(120, {}), 120);  // No rank has begun.
  EXPECT_EQ(FromStep(120, {100, 1'000'000'000}), 120);
  EXPECT_EQ(FromStep(102, {100, 1'000'000'000}), 102);
  // Step 101 runs. Ranks can read the assignment in time for step 103.
  EXPECT_EQ(FromStep(101, {100, 1'000'000'000}), 103);
  EXPECT_EQ(FromStep(50, {100, 1'000'000'000}), 103);
  // Ranks run ten steps of 10 ms until all have read the assignment.
  EXPECT_EQ(FromStep(50, {100, 10'000'000}), 112);
  EXPECT_EQ(FromStep(50, {100, std::nullopt}), 103);
}

class AssignmentSyncTest : public testing::Test {
 protected:
  void Look() {
    const auto looked = sync_.Look();
    EXPECT_TRUE(looked) << looked.error().Message();
  }
  // Writes the wanted assignment in the same way as the node does.
  bool Write(const JobProgress& progress = {}) {
    Look();
    if (!sync_.HasToWrite()) return false;
    for (const std::string& id : sync_.MissingPlans()) {
      EXPECT_TRUE(sync_.StorePlan(id, TinyPlan()));
    }
    const auto written = sync_.Write(progress);
    EXPECT_TRUE(written) << written.error().Message();
    return true;
  }
  void Follow(const protocol::AssignmentEvent& event) {
    sync_.Want(event);
    EXPECT_TRUE(Write());
  }
  protocol::Assignment InForce() const { return **protocol::ReadAssignment(directory_.path()); }

  TemporaryDirectory directory_;
  AssignmentSync sync_{{directory_.path()}};
};

TEST_F(AssignmentSyncTest, WritesTheWantedAssignmentOnce) {
  EXPECT_FALSE(Write());
  sync_.Want(Version(7));
  EXPECT_THAT(sync_.MissingPlans(), ElementsAre(kPlanA));
  EXPECT_TRUE(Write());
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kPlanA));
  EXPECT_EQ(InForce().from_step, 120);
  EXPECT_EQ(sync_.in_force(), (protocol::ServerOrigin{"j-1", 7}));
  EXPECT_EQ(sync_.ServerVersionOf(InForce().version), 7);
  EXPECT_FALSE(Write());
  sync_.Want(Version(7));
  sync_.Want(Version(6));
  EXPECT_FALSE(Write());
  protocol::AssignmentEvent none = Version(8);
  none.plans.clear();
  Follow(none);
  EXPECT_EQ(InForce().PlanOf(0), "");
  EXPECT_FALSE(InForce().own);
}

TEST_F(AssignmentSyncTest, TheSameVersionMayAddThePlanOfAnotherPipeline) {
  sync_.SetRanks({{0, {0}}});
  sync_.Want(Version(7));
  EXPECT_TRUE(Write());
  EXPECT_TRUE(sync_.NamesPlansOfAll());
  sync_.SetRanks({{0, {0}}, {1, {0}}});
  EXPECT_FALSE(sync_.NamesPlansOfAll());
  protocol::AssignmentEvent both = Version(7);
  both.plans[1] = kPlanB;
  sync_.Want(both);
  EXPECT_TRUE(sync_.NamesPlansOfAll());
  EXPECT_THAT(sync_.MissingPlans(), ElementsAre(kPlanB));
  EXPECT_TRUE(Write());
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kPlanA));
  EXPECT_EQ(InForce().PlanOf(1), PlanPath(kPlanB));
  sync_.Want(Version(7));
  EXPECT_FALSE(Write()) << "fewer plans change nothing";
}

TEST_F(AssignmentSyncTest, AnInvalidPlanIsNotStored) {
  const auto stored = sync_.StorePlan(kPlanA, "<html>");
  ASSERT_FALSE(stored);
  EXPECT_THAT(stored.error().Message(), HasSubstr(kPlanA));
  EXPECT_FALSE(sync_.HasPlan(kPlanA));
}

TEST_F(AssignmentSyncTest, ANewProcessReadsTheVersionInTheDirectory) {
  Follow(Version(7));
  AssignmentSync next({directory_.path()});
  ASSERT_TRUE(next.Look());
  EXPECT_EQ(next.newest(), (protocol::ServerOrigin{"j-1", 7}));
  EXPECT_EQ(next.ServerVersionOf(InForce().version), 7);
  next.Want(Version(7));
  EXPECT_FALSE(next.HasToWrite());
  next.Want(Version(8));
  EXPECT_TRUE(next.HasToWrite());
}

TEST_F(AssignmentSyncTest, WaitsForAVerificationAndRecognizesTheRestoredAssignment) {
  Follow(Version(7));
  {
    auto verification = protocol::AssignmentWriter::Open(directory_.path());
    protocol::Assignment baseline;
    baseline.until_step = 200;
    ASSERT_TRUE(verification->Write(baseline, 150));
    Look();
    EXPECT_EQ(sync_.in_force(), (protocol::ServerOrigin{"j-1", 7}));
    EXPECT_EQ(sync_.ServerVersionOf(InForce().version), 0);
    EXPECT_FALSE(sync_.HasToWrite());
    sync_.Want(Version(8));
    const auto written = sync_.Write({});
    ASSERT_FALSE(written);
    EXPECT_THAT(written.error().Message(),
                HasSubstr("another perseus gives this job its assignment"));
    ASSERT_TRUE(verification->Restore());
  }
  Look();
  EXPECT_EQ(sync_.ServerVersionOf(InForce().version), 7);
  EXPECT_TRUE(Write({300, 1'000'000'000}));
  EXPECT_EQ(sync_.in_force(), (protocol::ServerOrigin{"j-1", 8}));
  EXPECT_EQ(InForce().from_step, 303);
}

TEST_F(AssignmentSyncTest, WritesTheWantedAssignmentAgainAfterATune) {
  Follow(Version(7));
  {
    auto tune = protocol::AssignmentWriter::Open(directory_.path());
    ASSERT_TRUE(tune->Write(Tuned(), 0));
  }
  EXPECT_TRUE(Write());
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kPlanA));
}

TEST_F(AssignmentSyncTest, ADeletedFileIsWrittenAgainWithAHigherVersion) {
  for (const int version : {5, 6, 7}) {
    Follow(Version(version));
  }
  EXPECT_EQ(InForce().version, 3);
  std::filesystem::remove(directory_ / "assignment.json");
  EXPECT_TRUE(Write({200, 1'000'000'000}));
  EXPECT_EQ(InForce().version, 4);
  EXPECT_EQ(InForce().from_step, 203);
  EXPECT_EQ(InForce().server, (protocol::ServerOrigin{"j-1", 7}));
  EXPECT_FALSE(Write());
  EXPECT_EQ(sync_.ServerVersionOf(3), 7);
  EXPECT_EQ(sync_.ServerVersionOf(4), 7);
}

TEST_F(AssignmentSyncTest, ADamagedFileThatIsDeletedIsWrittenAgain) {
  Follow(Version(7));
  std::ofstream(directory_ / "assignment.json") << "{";
  EXPECT_FALSE(sync_.Look());
  std::filesystem::remove(directory_ / "assignment.json");
  sync_.Want(Version(8));
  EXPECT_TRUE(Write());
  EXPECT_EQ(InForce().version, 2);
  EXPECT_EQ(InForce().server, (protocol::ServerOrigin{"j-1", 8}));
}

TEST_F(AssignmentSyncTest, AFileBehindTheRanksIsWrittenAgain) {
  Follow(Version(7));
  EXPECT_EQ(InForce().version, 1);
  sync_.SawVersion(5);  // Another process wrote version 5, and then the file was lost.
  EXPECT_TRUE(Write({200, 1'000'000'000}));
  EXPECT_EQ(InForce().version, 6);
  EXPECT_EQ(InForce().from_step, 203);
  EXPECT_FALSE(Write());
  sync_.SawVersion(std::int64_t{1} << 53);
  EXPECT_FALSE(Write()) << "no later version would be valid";
}

TEST_F(AssignmentSyncTest, ADeletedDirectoryIsNotCreatedAgain) {
  Follow(Version(7));
  std::filesystem::remove_all(directory_.path());
  Look();
  EXPECT_FALSE(sync_.HasToWrite());
  std::filesystem::create_directory(directory_.path());
  EXPECT_TRUE(Write());
  EXPECT_EQ(InForce().version, 2);
}

TEST_F(AssignmentSyncTest, AVersionThatAnotherCoordinatorTookIsNoLongerTheServers) {
  Follow(Version(7));
  std::filesystem::remove(directory_ / "assignment.json");
  ASSERT_TRUE(protocol::WriteAssignment(directory_.path(), Tuned()));
  Look();
  EXPECT_EQ(sync_.ServerVersionOf(1), 0);
}

TEST_F(AssignmentSyncTest, ARestartedJobHasItsAssignmentFromStepZero) {
  sync_.Want(Version(7));
  sync_.Restart();  // Without an active assignment, the server's step stays.
  EXPECT_TRUE(Write());
  EXPECT_EQ(InForce().from_step, 120);
  EXPECT_FALSE(Write());
  sync_.Restart();
  EXPECT_TRUE(Write());
  EXPECT_EQ(InForce().from_step, 0);
  EXPECT_EQ(sync_.ServerVersionOf(InForce().version), 7);
  sync_.Restart();
  EXPECT_FALSE(Write());
}

TEST_F(AssignmentSyncTest, WithdrawsTheAssignmentOfAnEndedJob) {
  Follow(Version(7));
  sync_.WantNothing();
  EXPECT_TRUE(Write());
  EXPECT_TRUE(InForce().own);
  EXPECT_FALSE(sync_.in_force());
  EXPECT_FALSE(Write());
  // Another job in the same directory, whose versions count from 1.
  protocol::AssignmentEvent other = Version(1);
  other.job = "j-2";
  Follow(other);
  EXPECT_EQ(sync_.in_force(), (protocol::ServerOrigin{"j-2", 1}));
}

TEST_F(AssignmentSyncTest, DeletesPlansThatAreNoLongerNeeded) {
  const auto plan = [](int i) { return fmt::format("p-{:016x}", i); };
  const auto exists = [&](const std::string& id) {
    return std::filesystem::exists(directory_ / PlanPath(id));
  };
  const auto assign = [&](int version, const std::string& id) {
    protocol::AssignmentEvent assignment = Version(version);
    assignment.plans = {{0, id}};
    assignment.upcoming = {plan(100)};
    Follow(assignment);
  };
  assign(1, plan(1));
  ASSERT_TRUE(sync_.StorePlan(plan(100), TinyPlan()));
  std::ofstream(directory_ / "plans/tuned.json") << TinyPlan();
  std::ofstream(directory_ / "plans/p-tuned.json") << TinyPlan();
  assign(2, plan(2));
  EXPECT_TRUE(exists(plan(1))) << "a rank may be about to read it";
  assign(3, plan(3));
  EXPECT_FALSE(exists(plan(1)));
  EXPECT_TRUE(exists(plan(2)));
  EXPECT_TRUE(exists(plan(100))) << "it is likely to be next";
  EXPECT_TRUE(std::filesystem::exists(directory_ / "plans/tuned.json"));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "plans/p-tuned.json"));
  sync_.WantNothing();
  EXPECT_TRUE(Write());
  EXPECT_TRUE(exists(plan(3)));
  EXPECT_FALSE(exists(plan(2)));
  // The deleted plan is wanted again.
  protocol::AssignmentEvent again = Version(4);
  again.plans = {{0, plan(1)}};
  sync_.Want(again);
  EXPECT_THAT(sync_.MissingPlans(), ElementsAre(plan(1)));
}

// A server sends many versions while another coordinator keeps the node from writing any of them.
TEST_F(AssignmentSyncTest, PlansOfVersionsThatWereNeverWrittenDoNotStay) {
  Follow(Version(7));
  const auto tune = protocol::AssignmentWriter::Open(directory_.path());
  ASSERT_TRUE(tune);
  for (int version = 8; version < 40; ++version) {
    protocol::AssignmentEvent event = Version(version);
    event.plans[0] = fmt::format("p-{:016x}", version);
    event.upcoming = {fmt::format("p-{:016x}", 100 + version)};
    sync_.Want(event);
    ASSERT_TRUE(sync_.StorePlan(event.plans[0], TinyPlan()));
    ASSERT_TRUE(sync_.StorePlan(event.upcoming[0], TinyPlan()));
    EXPECT_FALSE(sync_.Write({}));
  }
  const std::filesystem::directory_iterator files(directory_ / "plans");
  EXPECT_EQ(std::distance(files, {}), 3) << "in force, wanted and upcoming";
  EXPECT_TRUE(sync_.HasPlan(kPlanA)) << "ranks follow it";
}

TEST_F(AssignmentSyncTest, PlansOfAJobTakeLimitedSpace) {
  std::filesystem::create_directory(directory_ / "plans");
  std::ofstream(directory_ / PlanPath(kPlanB)) << "";
  std::filesystem::resize_file(directory_ / PlanPath(kPlanB), 256U << 20U);
  sync_.Want(Version(7));
  EXPECT_FALSE(std::filesystem::exists(directory_ / PlanPath(kPlanB))) << "nothing wants it";
  protocol::AssignmentEvent event = Version(8);
  event.upcoming = {kPlanB};
  sync_.Want(event);
  std::ofstream(directory_ / PlanPath(kPlanB)) << "";
  std::filesystem::resize_file(directory_ / PlanPath(kPlanB), 256U << 20U);
  EXPECT_THAT(sync_.StorePlan(kPlanA, TinyPlan()),
              FailsWith(HasSubstr("plans: the plans that the server wants would take more than")));
  EXPECT_TRUE(sync_.StorePlan(kPlanB, TinyPlan()));
  EXPECT_TRUE(sync_.StorePlan(kPlanA, TinyPlan()));
}

TEST_F(AssignmentSyncTest, FollowsNoLinksOfTheOwner) {
  TemporaryDirectory other;
  const std::filesystem::path victim = other / "p-00000000000000cc.json";
  std::ofstream(victim) << "{}";
  std::filesystem::create_directory_symlink(other.path(), directory_ / "plans");
  sync_.Want(Version(7));
  Look();
  const auto stored = sync_.StorePlan(kPlanA, TinyPlan());
  ASSERT_FALSE(stored);
  EXPECT_THAT(stored.error().Message(), HasSubstr("plans: is a symbolic link"));
  EXPECT_FALSE(std::filesystem::exists(other / "p-00000000000000aa.json"));
  std::filesystem::create_symlink(victim, directory_ / "assignment.json");
  ASSERT_FALSE(sync_.Look());
  std::filesystem::remove(directory_ / "assignment.json");
  EXPECT_TRUE(sync_.Write({}));
  EXPECT_TRUE(std::filesystem::exists(victim));
}

TEST_F(AssignmentSyncTest, TheLockIsNoLink) {
  TemporaryDirectory other;
  std::ofstream(other / "victim") << "x";
  std::filesystem::permissions(other / "victim", std::filesystem::perms::owner_read);
  std::filesystem::create_symlink(other / "victim", directory_ / "coordinator.lock");
  sync_.Want(Version(7));
  ASSERT_TRUE(sync_.StorePlan(kPlanA, TinyPlan()));
  EXPECT_FALSE(sync_.Write({}));
  EXPECT_EQ(std::filesystem::status(other / "victim").permissions(),
            std::filesystem::perms::owner_read);
}

TEST_F(AssignmentSyncTest, AnEndedJobKeepsTheAssignmentOfAnotherCoordinator) {
  ASSERT_TRUE(protocol::WriteAssignment(directory_.path(), Tuned()));
  sync_.WantNothing();
  EXPECT_FALSE(Write());
}

TEST_F(AssignmentSyncTest, VersionsOfAnEarlierJobDoNotCount) {
  Follow(Version(7));
  const std::int64_t before = InForce().version;
  protocol::AssignmentEvent other = Version(1);
  other.job = "j-2";
  sync_.Want(other);
  EXPECT_EQ(sync_.ServerVersionOf(before), 0);
}

}  // namespace
}  // namespace perseus::node
