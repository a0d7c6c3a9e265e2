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

TEST(SubordinateUsers, AllIdsOfARangeHaveOneAccount) {
  const auto users = SubordinateUsers::Parse("ann:100000:65536\nben:165536:65536\n");
  EXPECT_EQ(users.AccountOf(0), 0U);
  EXPECT_EQ(users.AccountOf(1000), 1000U);
  EXPECT_EQ(users.AccountOf(99'999), 99'999U);
  EXPECT_EQ(users.AccountOf(100'000), 100'000U);
  EXPECT_EQ(users.AccountOf(165'535), 100'000U);
  EXPECT_EQ(users.AccountOf(165'536), 165'536U);
  EXPECT_EQ(users.AccountOf(231'071), 165'536U);
  EXPECT_EQ(users.AccountOf(231'072), 231'072U);
}

TEST(SubordinateUsers, RangesThatOverlapAreOne) {
  const auto users = SubordinateUsers::Parse("a:200:10\nb:100:50\nc:205:100\nd:120:90\ne:400:1");
  for (const uid_t uid : {100U, 149U, 160U, 204U, 209U, 304U}) {
    EXPECT_EQ(users.AccountOf(uid), 100U) << uid;
  }
  EXPECT_EQ(users.AccountOf(99), 99U);
  EXPECT_EQ(users.AccountOf(305), 305U);
  EXPECT_EQ(users.AccountOf(400), 400U);
}

TEST(SubordinateUsers, OtherLinesAreIgnored) {
  const auto users = SubordinateUsers::Parse(
      "\n# comment\n:\n::\nann\nann:100\nann:x:10\nann:100:\nann:100:0\nann:0:10\nann:-5:10\n"
      "ann:99999999999:10\nben:4294967290:65536\n");
  for (const uid_t uid : {1U, 5U, 100U, 105U}) EXPECT_EQ(users.AccountOf(uid), uid);
  EXPECT_EQ(users.AccountOf(4'294'967'295U), 4'294'967'290U);
}

}  // namespace
}  // namespace perseus::agent
