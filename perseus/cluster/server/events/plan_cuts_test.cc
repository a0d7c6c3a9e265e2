#include "perseus/cluster/server/events/plan_cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perseus/planning/plan_file/plan_file.h"
#include "tests/support/tiny_plan.h"

namespace perseus::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PlanCutsTest : public testing::Test {
 protected:
  std::string Store(const std::string& body) {
    const std::string job =
        store_->CreateJob({.key = "run", .body = "{}", .target = ""}, 1)->job.id;
    return store_->AddPlan({.id = {}, .job = job, .slug = "edp", .body = body}, 1)->id;
  }
  std::unique_ptr<store::Store> store_ = *store::OpenStore("sqlite::memory:");
  PlanCuts cuts_{*store_};
};

TEST_F(PlanCutsTest, KeepsTheCutAsOneLine) {
  const std::string plan = Store(node::TinyPlan(2));
  const auto cut = cuts_.Get(plan, {1});
  ASSERT_TRUE(cut) << cut.error().Message();
  EXPECT_THAT(**cut, Not(HasSubstr("\n")));
  const auto read = plan_file::ParsePlan(**cut, "cut");
  ASSERT_TRUE(read) << read.error().Message();
  EXPECT_TRUE(read->pp_ranks[0].is_cut);
  EXPECT_EQ(read->pp_ranks[1].instructions.size(), 2U);
  EXPECT_EQ(*cuts_.Get(plan, {1}), *cut);
  EXPECT_EQ(*cuts_.Get("p-none", {1}), nullptr);
}

// If unknown ranks were accepted, each list of such ranks would be another cut in the cache.
TEST_F(PlanCutsTest, RefusesUnknownRanks) {
  EXPECT_EQ(cuts_.Get(Store(node::TinyPlan(2)), {0, 2, 3}).error().kind, ErrorKind::kInput);
}

TEST_F(PlanCutsTest, APlanThatCannotBeReadIsNoMistakeOfTheCaller) {
  const auto cut = cuts_.Get(Store("{}"), {0});
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().kind, ErrorKind::kSystem);
}

}  // namespace
}  // namespace perseus::server
