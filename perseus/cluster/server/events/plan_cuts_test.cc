#include "perseus/cluster/server/events/plan_cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace perseus::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kPlan = R"({"pp_ranks": [
  {"pp_rank": 0, "instructions": [{"stage": 0, "n": 0}, {"stage": 0, "n": 1}]},
  {"pp_rank": 1, "instructions": [{"stage": 1, "n": 0}, {"stage": 1, "n": 1}]}]})";

TEST(CutPlan, KeepsTheRequestedRanksWhole) {
  const auto cut = CutPlan(kPlan, {1});
  ASSERT_TRUE(cut);
  const json ranks = json::parse(*cut)["pp_ranks"];
  EXPECT_EQ(ranks[0]["cut"], true);
  EXPECT_EQ(ranks[0]["instructions"].size(), 1U);
  EXPECT_FALSE(ranks[1].contains("cut"));
  EXPECT_EQ(ranks[1]["instructions"].size(), 2U);
}

// Otherwise each list of such ranks would be another cut in the cache.
TEST(CutPlan, RefusesUnknownRanks) {
  const auto cut = CutPlan(kPlan, {0, 2, 3});
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().kind, ErrorKind::kInput);
  EXPECT_THAT(cut.error().Message(), HasSubstr("no pp_rank 2 (it has 2 pp_ranks"));
}

}  // namespace
}  // namespace perseus::server
