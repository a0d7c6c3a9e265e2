#include "perseus/runtime/protocol/orders_desk.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "tests/support/temporary_directory.h"

namespace perseus::protocol {
namespace {

using ::testing::HasSubstr;

class OrdersDeskTest : public testing::Test {
 protected:
  static Orders Sweep(std::int64_t until_step) {
    Orders orders;
    orders.clocks = {{0, 0, InstructionKind::kForward, 1080}};
    orders.until_step = until_step;
    return orders;
  }
  Orders InForce() const { return **ReadOrders(directory_); }

  TemporaryDirectory directory_;
};

TEST_F(OrdersDeskTest, OrdersOfBeforeOutliveACoordinatorThatDies) {
  Orders before;
  before.version = 4;
  before.plan = "plans/4.json";
  ASSERT_TRUE(WriteOrders(directory_, before));
  {
    auto killed = OrdersDesk::Open(directory_);
    ASSERT_TRUE(killed);
    EXPECT_FALSE(killed->HasToGiveBack());
    ASSERT_TRUE(killed->Give(Sweep(20), 10));
    ASSERT_TRUE(killed->Give(Sweep(30), 20));
  }
  EXPECT_EQ(InForce().clocks, Sweep(30).clocks);
  auto next = OrdersDesk::Open(directory_);
  ASSERT_TRUE(next);
  EXPECT_TRUE(next->HasToGiveBack());
  ASSERT_TRUE(next->GiveBack());
  EXPECT_EQ(InForce().plan, "plans/4.json");
  EXPECT_EQ(InForce().version, 7);
  EXPECT_FALSE(InForce().until_step);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "orders-before.json"));
}

TEST_F(OrdersDeskTest, WhereNothingWasOrderedRanksGoBackToTheirOwnPlans) {
  auto desk = OrdersDesk::Open(directory_);
  ASSERT_TRUE(desk->Give(Sweep(20), 10));
  ASSERT_TRUE(desk->GiveBack());
  EXPECT_TRUE(InForce().own);
}

TEST_F(OrdersDeskTest, LastingOrdersAreWhatWasBeforeForTheNext) {
  {
    auto desk = OrdersDesk::Open(directory_);
    ASSERT_TRUE(desk->Give(Sweep(20), 10));
    Orders plan;
    plan.plan = "plans/2.json";
    ASSERT_TRUE(desk->Give(plan, 0));
  }
  auto next = OrdersDesk::Open(directory_);
  EXPECT_FALSE(next->HasToGiveBack());
  ASSERT_TRUE(next->Give(Sweep(40), 30));
  ASSERT_TRUE(next->GiveBack());
  EXPECT_EQ(InForce().plan, "plans/2.json");
}

TEST_F(OrdersDeskTest, OrdersMayComeBeforeTheDirectory) {
  auto desk = OrdersDesk::Open(directory_ / "run");
  ASSERT_TRUE(desk) << desk.error().message;
  EXPECT_TRUE(desk->Give(Orders(), 8));
}

TEST_F(OrdersDeskTest, OnlyOneAtATime) {
  const auto first = OrdersDesk::Open(directory_);
  ASSERT_TRUE(first);
  const auto second = OrdersDesk::Open(directory_);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("another perseus gives this job its orders"));
}

}  // namespace
}  // namespace perseus::protocol
