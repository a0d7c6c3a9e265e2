#include "perseus/runtime/access/user_budget.h"

#include <gtest/gtest.h>

namespace perseus::agent {
namespace {

constexpr uid_t kSpender = 1000;
constexpr uid_t kNeighbor = 1001;

TEST(UserBudget, AUserWhoSpentTheBurstWaitsUntilTheUnitsAreBack) {
  UserBudget budget;
  EXPECT_EQ(budget.Take(kSpender, UserBudget::kBurst, 0), 0);
  EXPECT_EQ(budget.Take(kSpender, 10, 0), 10 * kMillisecond) << "1,000 units come back in a second";
  EXPECT_EQ(budget.Take(kSpender, 10, 9 * kMillisecond), kMillisecond);
  EXPECT_EQ(budget.Take(kSpender, 10, 10 * kMillisecond), 0);
  EXPECT_EQ(budget.Take(kSpender, 10, 10 * kMillisecond), 10 * kMillisecond);
}

TEST(UserBudget, OneUsersSpendingTakesNothingFromAnother) {
  UserBudget budget;
  EXPECT_EQ(budget.Take(kSpender, UserBudget::kBurst, 0), 0);
  EXPECT_GT(budget.Take(kSpender, 1, 0), 0);
  EXPECT_EQ(budget.Take(kNeighbor, UserBudget::kBurst, 0), 0);
}

TEST(UserBudget, NobodySavesMoreThanTheBurst) {
  UserBudget budget;
  EXPECT_EQ(budget.Take(kSpender, 1, 0), 0);
  EXPECT_EQ(budget.Take(kSpender, UserBudget::kBurst, 3600 * kSecond), 0);
  EXPECT_GT(budget.Take(kSpender, 1, 3600 * kSecond), 0);
}

TEST(UserBudget, RootIsExempt) {
  UserBudget budget;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(budget.Take(0, UserBudget::kBurst, 0), 0);
}

TEST(UserBudget, ManyUsersDoNotMakeItForgetOneWhoOwes) {
  UserBudget budget;
  EXPECT_EQ(budget.Take(kSpender, UserBudget::kBurst, 0), 0);
  for (uid_t user = 100'000; user < 110'000; ++user) EXPECT_EQ(budget.Take(user, 1, 0), 0);
  EXPECT_GT(budget.Take(kSpender, 1, 0), 0);
}

}  // namespace
}  // namespace perseus::agent
