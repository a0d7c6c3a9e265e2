#include "perseus/cluster/node/orders_keeper.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "perseus/runtime/protocol/orders_desk.h"
#include "tests/support/temporary_directory.h"
#include "perseus/cluster/node/tiny_plan.h"

namespace perseus::node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kOrdersKeeperPlanA = "p-00000000000000aa";
constexpr const char* kOrdersKeeperPlanB = "p-00000000000000bb";

JobOrders Version(std::int64_t version) { return {"j-1", "run", version, 120, {{0, kOrdersKeeperPlanA}}, ""}; }

TEST(OrdersOfAJob, NameEachPipelinesPlan) {
  const protocol::Orders orders =
      OrdersOf({"j-1", "run", 7, 120, {{0, kOrdersKeeperPlanA}, {1, kOrdersKeeperPlanB}}, "straggler 1: 1.25"});
  EXPECT_EQ(orders.PlanOf(0), "plans/p-00000000000000aa.json");
  EXPECT_EQ(orders.PlanOf(1), "plans/p-00000000000000bb.json");
  EXPECT_EQ(orders.PlanOf(2), "");
  EXPECT_EQ(orders.server, (protocol::ServerOrigin{"j-1", 7}));
  EXPECT_TRUE(orders.record);
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

class OrdersKeeperTest : public testing::Test {
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
  protocol::Orders InForce() const { return **protocol::ReadOrders(directory_.path()); }

  TemporaryDirectory directory_;
  OrdersKeeper keeper_{directory_.path()};
};

TEST_F(OrdersKeeperTest, GivesWhatIsWantedOnce) {
  EXPECT_FALSE(Give());
  keeper_.Want(Version(7));
  EXPECT_THAT(keeper_.MissingPlans(), ElementsAre(kOrdersKeeperPlanA));
  EXPECT_TRUE(Give());
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kOrdersKeeperPlanA));
  EXPECT_EQ(InForce().from_step, 120);
  EXPECT_EQ(keeper_.in_force(), (protocol::ServerOrigin{"j-1", 7}));
  EXPECT_EQ(keeper_.ServerVersionOf(InForce().version), 7);
  EXPECT_FALSE(Give());
  keeper_.Want(Version(7));
  keeper_.Want(Version(6));
  EXPECT_FALSE(Give());
  JobOrders none = Version(8);
  none.plans.clear();
  keeper_.Want(none);
  EXPECT_TRUE(Give());
  EXPECT_EQ(InForce().PlanOf(0), "");
  EXPECT_FALSE(InForce().own);
}

TEST_F(OrdersKeeperTest, TheSameOrdersComeAgainForRanksOfAnotherPipeline) {
  keeper_.SetRanks({{0, {0}}});
  keeper_.Want(Version(7));
  EXPECT_TRUE(Give());
  EXPECT_TRUE(keeper_.NamesPlansOfAll());
  keeper_.SetRanks({{0, {0}}, {1, {0}}});
  EXPECT_FALSE(keeper_.NamesPlansOfAll());
  JobOrders both = Version(7);
  both.plans[1] = kOrdersKeeperPlanB;
  keeper_.Want(both);
  EXPECT_TRUE(keeper_.NamesPlansOfAll());
  EXPECT_THAT(keeper_.MissingPlans(), ElementsAre(kOrdersKeeperPlanB));
  EXPECT_TRUE(Give());
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kOrdersKeeperPlanA));
  EXPECT_EQ(InForce().PlanOf(1), PlanPath(kOrdersKeeperPlanB));
  keeper_.Want(Version(7));
  EXPECT_FALSE(Give()) << "fewer change nothing";
}

TEST_F(OrdersKeeperTest, WhatIsNoPlanIsNotKept) {
  const auto kept = keeper_.KeepPlan(kOrdersKeeperPlanA, "<html>");
  ASSERT_FALSE(kept);
  EXPECT_THAT(kept.error().message, HasSubstr(kOrdersKeeperPlanA));
  EXPECT_FALSE(keeper_.HasPlan(kOrdersKeeperPlanA));
}

TEST_F(OrdersKeeperTest, ANewProcessKnowsWhatTheDirectoryHas) {
  keeper_.Want(Version(7));
  Give();
  OrdersKeeper next(directory_.path());
  ASSERT_TRUE(next.Look());
  EXPECT_EQ(next.newest(), (protocol::ServerOrigin{"j-1", 7}));
  EXPECT_EQ(next.ServerVersionOf(InForce().version), 7);
  next.Want(Version(7));
  EXPECT_FALSE(next.HasToGive());
  next.Want(Version(8));
  EXPECT_TRUE(next.HasToGive());
}

TEST_F(OrdersKeeperTest, WaitsForAVerificationAndKnowsWhatItPutsBack) {
  keeper_.Want(Version(7));
  Give();
  {
    auto verification = protocol::OrdersDesk::Open(directory_.path());
    protocol::Orders baseline;
    baseline.until_step = 200;
    ASSERT_TRUE(verification->Give(baseline, 150));
    Look();
    EXPECT_EQ(keeper_.in_force(), (protocol::ServerOrigin{"j-1", 7}));
    EXPECT_EQ(keeper_.ServerVersionOf(InForce().version), 0);
    EXPECT_FALSE(keeper_.HasToGive());
    keeper_.Want(Version(8));
    const auto given = keeper_.Give({});
    ASSERT_FALSE(given);
    EXPECT_THAT(given.error().message, HasSubstr("another perseus gives this job its orders"));
    ASSERT_TRUE(verification->GiveBack());
  }
  Look();
  EXPECT_EQ(keeper_.ServerVersionOf(InForce().version), 7);
  EXPECT_TRUE(Give({300, 1'000'000'000}));
  EXPECT_EQ(keeper_.in_force(), (protocol::ServerOrigin{"j-1", 8}));
  EXPECT_EQ(InForce().from_step, 303);
}

TEST_F(OrdersKeeperTest, TheServersOrdersComeBackAfterATune) {
  keeper_.Want(Version(7));
  Give();
  {
    auto tune = protocol::OrdersDesk::Open(directory_.path());
    protocol::Orders plan;
    plan.plan = "plans/tuned.json";
    ASSERT_TRUE(tune->Give(plan, 0));
  }
  EXPECT_TRUE(Give());
  EXPECT_EQ(InForce().PlanOf(0), PlanPath(kOrdersKeeperPlanA));
}

TEST_F(OrdersKeeperTest, AJobThatBeginsAnewFollowsFromItsFirstStepOn) {
  keeper_.Want(Version(7));
  keeper_.BeginAnew();  // Before it had any orders: those of the server count.
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

TEST_F(OrdersKeeperTest, AJobThatEndedHasNoneOfTheServersOrders) {
  keeper_.Want(Version(7));
  Give();
  keeper_.WantNothing();
  EXPECT_TRUE(Give());
  EXPECT_TRUE(InForce().own);
  EXPECT_FALSE(keeper_.in_force());
  EXPECT_FALSE(Give());
  // Another job in the same directory, whose versions count from 1.
  JobOrders other = Version(1);
  other.job = "j-2";
  keeper_.Want(other);
  EXPECT_TRUE(Give());
  EXPECT_EQ(keeper_.in_force(), (protocol::ServerOrigin{"j-2", 1}));
}

TEST_F(OrdersKeeperTest, PlansThatNobodyNeedsAnyMoreAreDeleted) {
  const auto plan = [](int i) { return fmt::format("p-{:016x}", i); };
  const auto is_there = [&](const std::string& id) {
    return std::filesystem::exists(directory_ / PlanPath(id));
  };
  const auto order = [&](int version, const std::string& id) {
    JobOrders orders = Version(version);
    orders.plans = {{0, id}};
    orders.upcoming = {plan(100)};
    keeper_.Want(orders);
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
  JobOrders again = Version(4);
  again.plans = {{0, plan(1)}};
  keeper_.Want(again);
  EXPECT_THAT(keeper_.MissingPlans(), ElementsAre(plan(1)));
}

TEST_F(OrdersKeeperTest, OrdersOfOthersAreLeftAloneWhereTheJobEnds) {
  protocol::Orders plan;
  plan.plan = "plans/tuned.json";
  ASSERT_TRUE(protocol::WriteOrders(directory_.path(), plan));
  keeper_.WantNothing();
  EXPECT_FALSE(Give());
}

TEST_F(OrdersKeeperTest, VersionsOfAnEarlierJobAreNoneOfThisOne) {
  keeper_.Want(Version(7));
  Give();
  const std::int64_t before = InForce().version;
  JobOrders other = Version(1);
  other.job = "j-2";
  keeper_.Want(other);
  EXPECT_EQ(keeper_.ServerVersionOf(before), 0);
}

}  // namespace
}  // namespace perseus::node
