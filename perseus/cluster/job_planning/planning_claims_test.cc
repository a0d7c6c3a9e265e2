#include "perseus/cluster/job_planning/planning_claims.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace perseus::job_planning {
namespace {

class PlanningClaimsTest : public testing::Test {
 protected:
  PlanningClaimsTest() { Change(job_); }

  std::string Register(const std::string& key) {
    return store_->CreateJob({.key = key, .body = "{}", .target = ""}, now_)->job.id;
  }
  void Change(const std::string& job) {
    ASSERT_TRUE(store_->SetTarget(job, std::to_string(++changes_), now_));
  }
  store::PlanningTask Claim(const std::string& worker) {
    return store_->ClaimPlanning(worker, now_, PlanningClaims::kClaim)->value();
  }
  bool IsIdle() { return !store_->ClaimPlanning("idle", now_, 1)->has_value(); }

  std::unique_ptr<store::Store> store_ = *store::OpenStore("sqlite::memory:");
  Milliseconds now_ = 1'000'000;
  int changes_ = 0;
  std::string job_ = Register("run");  // The planning of this job is due.
  PlanningClaims claims_{*store_, [this] { return now_; }};
};

TEST_F(PlanningClaimsTest, ARenewedClaimDoesNotExpire) {
  const store::PlanningTask task = Claim("w");
  const std::stop_token stop = claims_.Begin(task);
  for (int i = 0; i < 100; ++i) {
    now_ += PlanningClaims::kRenewAfter;
    ASSERT_TRUE(claims_.Renew());
    now_ += PlanningClaims::kRenewAfter;  // No renewal happens in the meantime.
    ASSERT_TRUE(IsIdle());
  }
  EXPECT_FALSE(stop.stop_requested());
  EXPECT_TRUE(*store_->CompletePlanning(task, {.generation = 1}, now_));
}

TEST_F(PlanningClaimsTest, StopsAPlanningThatAnotherWorkerHasClaimed) {
  const std::stop_token stop = claims_.Begin(Claim("w"));
  now_ += PlanningClaims::kClaim;
  Claim("other");
  ASSERT_TRUE(claims_.Renew());
  EXPECT_TRUE(stop.stop_requested());
}

TEST_F(PlanningClaimsTest, StopsThePlanningOfAJobThatHasEnded) {
  const std::stop_token stop = claims_.Begin(Claim("w"));
  ASSERT_TRUE(store_->EndJob(job_, now_));
  now_ += PlanningClaims::kRenewAfter;
  ASSERT_TRUE(claims_.Renew());
  EXPECT_TRUE(stop.stop_requested());
}

TEST_F(PlanningClaimsTest, ContinuesAPlanningWhoseJobChanges) {
  const std::stop_token stop = claims_.Begin(Claim("w"));
  Change(job_);
  ASSERT_TRUE(claims_.Renew());
  EXPECT_FALSE(stop.stop_requested());
}

TEST_F(PlanningClaimsTest, DoesNotRenewTheClaimOfAFinishedPlanning) {
  const store::PlanningTask task = Claim("w");
  claims_.Begin(task);
  claims_.End(task);
  now_ += PlanningClaims::kClaim;
  ASSERT_TRUE(claims_.Renew());
  EXPECT_FALSE(IsIdle());
}

TEST_F(PlanningClaimsTest, StopAllAlsoStopsLaterPlannings) {
  const std::stop_token stop = claims_.Begin(Claim("w"));
  claims_.StopAll();
  EXPECT_TRUE(stop.stop_requested());
  Change(Register("other"));
  EXPECT_TRUE(claims_.Begin(Claim("w")).stop_requested());
}

}  // namespace
}  // namespace perseus::job_planning
