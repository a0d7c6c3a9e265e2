// Tests the audit trail and tokens with every database.
#include "perseus/cluster/store/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perseus/cluster/store/store.h"
#include "tests/support/store_fixture.h"

namespace perseus::store {
namespace {

class AuditTest : public StoreTest {
 protected:
  std::vector<AuditRecord> All() const { return Get(store_->ListAudit({.limit = 10'000})); }
  std::vector<std::string> Actions() const {
    std::vector<std::string> actions;
    for (const AuditRecord& record : All()) actions.push_back(record.action);
    return actions;
  }
  const Author ann_{.id = "t-1",
                    .name = "ann",
                    .role = Scope::kOperator,
                    .peer = "192.0.2.7",
                    .trace = "0af7651916cd43dd8448eb211c80319c",
                    .reason = "power is short"};
};

INSTANTIATE_TEST_SUITE_P(Every, AuditTest, kBackends, NameOf);

TEST_P(AuditTest, RecordsWhoExtendsAStraggler) {
  StragglerRecord straggler{.job = job_,
                            .dp_rank = 1,
                            .source = StragglerSource::kReport,
                            .slowdown = 1.5,
                            .expires = 60'000};
  Succeed(store_->PutStraggler(straggler, 2000, ann_));
  straggler.expires = 90'000;
  Succeed(store_->PutStraggler(straggler, 3000, ann_));
  const std::vector<AuditRecord> all = All();
  ASSERT_EQ(all.size(), 3u) << "the job, and both notices";
  EXPECT_EQ(all[2].by, ann_);
  EXPECT_EQ(all[2].before, all[1].after);
  EXPECT_NE(all[2].after, all[1].after);
  // The audit trail does not record that the server extends a detected straggler with each report.
  straggler.source = StragglerSource::kDetected;
  Succeed(store_->PutStraggler(straggler, 3000));
  straggler.expires = 99'000;
  Succeed(store_->PutStraggler(straggler, 4000));
  EXPECT_EQ(All().size(), 4u);
}

TEST_P(AuditTest, RecordsEachChangeWithItsAuthor) {
  Succeed(store_->SetTarget(job_, R"({"kind": "edp"})", 2000, ann_));
  Get(store_->PutProfile(job_, "csv", 2000, ann_));
  StragglerRecord straggler{
      .job = job_, .dp_rank = 1, .source = StragglerSource::kReport, .slowdown = 1.5};
  Succeed(store_->PutStraggler(straggler, 2000, ann_));
  straggler.slowdown = 2;
  Succeed(store_->PutStraggler(straggler, 2000, ann_));
  EXPECT_TRUE(Get(store_->DeleteStraggler(job_, 1, StragglerSource::kReport, 2000, ann_)));
  EXPECT_FALSE(Get(store_->DeleteStraggler(job_, 1, StragglerSource::kReport, 2000, ann_)))
      << "no change";
  Succeed(store_->AddToken({.id = "t-2", .scope = Scope::kRead}, ann_));
  EXPECT_TRUE(Get(store_->DeleteToken("t-2", 3000, ann_)));
  Succeed(store_->EndJob(job_, 3000, ann_));
  EXPECT_THAT(Actions(), testing::ElementsAre("job.register", "job.target", "job.profile",
                                              "straggler.put", "straggler.put", "straggler.delete",
                                              "token.create", "token.revoke", "job.end"));
  const std::vector<AuditRecord> all = All();
  EXPECT_EQ(all[0].by, Author()) << "the server itself";
  EXPECT_EQ(all[1].by, ann_);
  EXPECT_EQ(all[1].key, "run7");
  EXPECT_EQ(all[1].at, 2000);
  EXPECT_EQ(all[1].before, R"("t")") << "the fixture's target is no JSON";
  EXPECT_EQ(all[1].after, R"({"kind":"edp"})");
  EXPECT_EQ(all[4].subject, "pipeline 1 report");
  EXPECT_EQ(all[4].before, R"({"expires_ms":0,"slowdown":1.5,"starts_ms":0})");
  EXPECT_EQ(all[4].after, R"({"expires_ms":0,"slowdown":2,"starts_ms":0})");
  EXPECT_EQ(all[7].before, R"({"name":"","scope":"read"})") << "no hash of a secret";
}

TEST_P(AuditTest, RecordsAssignmentsWithTheirReason) {
  Succeed(store_->RequestPlanning(job_, 0));
  const auto task = Get(store_->ClaimPlanning("w", 1, 1000));
  ASSERT_TRUE(task);
  PlanningOutcome outcome;
  outcome.assignment = {.from_step = 7, .reason = "straggler 1: 25.00 %"};
  ASSERT_TRUE(Get(store_->CompletePlanning(*task, outcome, 5000)));
  const AuditRecord last = All().back();
  EXPECT_EQ(last.action, "job.assignment");
  EXPECT_EQ(last.subject, "version 1");
  EXPECT_EQ(last.by.role, std::nullopt);
  EXPECT_EQ(last.by.reason, "straggler 1: 25.00 %");
}

TEST_P(AuditTest, FiltersRecords) {
  const std::string other = Register("other");
  Succeed(store_->SetTarget(job_, "{}", 2000, ann_));
  Succeed(store_->SetTarget(other, "{}", 3000));
  const auto count = [this](const AuditFilter& filter) {
    return Get(store_->ListAudit(filter)).size();
  };
  EXPECT_EQ(count({}), 4U);
  EXPECT_EQ(count({.job = "other"}), 2U);
  EXPECT_EQ(count({.job = other}), 2U);
  EXPECT_EQ(count({.who = "ann"}), 1U);
  EXPECT_EQ(count({.who = "t-1"}), 1U);
  EXPECT_EQ(count({.action = "job.target"}), 2U);
  EXPECT_EQ(count({.action = "job"}), 4U);
  EXPECT_EQ(count({.action = "jo"}), 0U);
  EXPECT_EQ(count({.since = 3000}), 1U);
  EXPECT_EQ(count({.after = 1, .before = 4}), 2U);
  const auto newest = Get(store_->ListAudit({.newest_first = true, .limit = 1}));
  EXPECT_EQ(newest.at(0).number, 4);
}

// Many threads of several replicas append at once.
TEST_P(AuditTest, NumbersHaveNoGap) {
  constexpr std::size_t kThreads = 8;
  constexpr int kEach = 10;
  std::unique_ptr<Store> replica;
  if (GetParam() == Backend::kPostgres) replica = Get(OpenStore(address_));
  RunInThreads(kThreads, [&](std::size_t i) {
    Store& store = replica && i % 2 == 1 ? *replica : *store_;
    for (int k = 0; k < kEach; ++k) Succeed(store.SetTarget(job_, "{}", k, ann_));
  });
  const std::vector<AuditRecord> all = All();
  ASSERT_EQ(all.size(), 1 + kThreads * kEach);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].number, static_cast<std::int64_t>(i) + 1);
  }
}

TEST_P(AuditTest, AFailedChangeLeavesNoRecord) {
  Succeed(store_->EndJob(job_, 2000));
  EXPECT_FALSE(store_->SetTarget(job_, "{}", 3000, ann_));
  EXPECT_THAT(Actions(), testing::ElementsAre("job.register", "job.end"));
}

TEST_P(AuditTest, OnlyTheHolderOfASecretRenewsAToken) {
  const TokenRecord token{
      .id = "t-1", .hash = "first", .scope = Scope::kAgent, .expires = 1000, .nodes = "n0"};
  Succeed(store_->AddToken(token));
  const auto renewed = [&](const std::string& hash, Milliseconds now) {
    TokenRecord record = token;
    record.hash = hash;
    record.expires = now + 1000;
    record.previous_until = now + 300;
    return record;
  };
  EXPECT_FALSE(Get(store_->RenewToken(renewed("second", 500), "wrong", 500)));
  EXPECT_TRUE(Get(store_->RenewToken(renewed("second", 500), "first", 500)));
  // The answer was lost. So the first secret can renew the token again, until the end of this
  // secret.
  EXPECT_TRUE(Get(store_->RenewToken(renewed("third", 600), "first", 600)));
  EXPECT_FALSE(Get(store_->RenewToken(renewed("fourth", 700), "second", 700)));
  EXPECT_FALSE(Get(store_->RenewToken(renewed("fourth", 800), "first", 800))) << "too late";
  const auto tokens = Get(store_->ListTokensOfNode("n0"));
  ASSERT_EQ(tokens.size(), 1U);
  EXPECT_EQ(tokens[0].hash, "third");
  EXPECT_EQ(tokens[0].expires, 1600);
  EXPECT_EQ(tokens[0].previous_hash, "first");
}

TEST_P(AuditTest, ANodeGetsOnlyRanksThatNobodyUses) {
  const std::string ranks = R"([{"dp_rank":0,"pp_rank":0,"tp_rank":0}])";
  const InUse in_use{.silent_since = 1000, .idle_since = 500};
  const auto take = [&](const char* node, Milliseconds now, const InUse& use) {
    return Get(store_->AttachNode(job_, node, ranks, now, use)).size();
  };
  EXPECT_EQ(take("a", 2000, in_use), 0U);
  EXPECT_EQ(take("b", 2000, in_use), 1U) << "node a runs it";
  EXPECT_EQ(take("a", 2000, in_use), 0U);
  EXPECT_EQ(take("b", 2000, {.silent_since = 2001, .idle_since = 500}), 0U) << "a is silent";
  EXPECT_EQ(take("a", 2000, {.silent_since = 1000, .idle_since = 2001}), 0U) << "b is idle";
  EXPECT_EQ(Actions().back(), "node.take");
}

}  // namespace
}  // namespace perseus::store
