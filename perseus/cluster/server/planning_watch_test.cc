#include "perseus/cluster/server/planning_watch.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace perseus::server {
namespace {

class PlanningWatchTest : public testing::Test {
 protected:
  PlanningWatchTest() { Use(2); }

  void Use(int workers) {
    watch_ = std::make_unique<PlanningWatch>(*store_, workers, [this] { return now_; });
  }
  std::string Register(const std::string& key) {
    return store_->CreateJob({.key = key, .body = "{}", .target = ""}, now_)->job.id;
  }
  void Change(const std::string& job) {
    ASSERT_TRUE(store_->SetTarget(job, std::to_string(++changes_), now_));
  }
  store::PlanningTask Claim(const std::string& worker) {
    return store_->ClaimPlanning(worker, now_, PlanningWatch::kClaim)->value();
  }
  bool IsIdle() { return !store_->ClaimPlanning("idle", now_, 1)->has_value(); }
  // A first look at the job, and a worker with the second.
  store::PlanningTask ClaimSecondLook(const std::string& job, const std::string& worker) {
    Change(job);
    const store::PlanningTask first = Claim(worker);
    EXPECT_EQ(first.job, job);
    EXPECT_TRUE(first.is_awaited);
    const auto record = *store_->FindJob(job);
    store::PlanningOutcome outcome;
    outcome.generation = record->generation;
    outcome.again_at = now_;
    EXPECT_TRUE(*store_->CompletePlanning(first, outcome, now_));
    store::PlanningTask second = Claim(worker);
    EXPECT_FALSE(second.is_awaited);
    return second;
  }

  std::unique_ptr<store::Store> store_ = *store::OpenStore("sqlite::memory:");
  store::Milliseconds now_ = 1'000'000;
  int changes_ = 0;
  std::unique_ptr<PlanningWatch> watch_;
};

TEST_F(PlanningWatchTest, APlanningMayLastAsLongAsItHasTo) {
  Change(Register("run"));
  const store::PlanningTask task = Claim("w");
  const std::stop_token stop = watch_->Begin(task);
  for (int i = 0; i < 100; ++i) {
    now_ += PlanningWatch::kRenewAfter;
    ASSERT_TRUE(watch_->Look());
    now_ += PlanningWatch::kRenewAfter;  // Nobody looked in between.
    ASSERT_TRUE(IsIdle());
  }
  EXPECT_FALSE(stop.stop_requested());
  EXPECT_TRUE(*store_->CompletePlanning(task, {.generation = 1}, now_));
}

TEST_F(PlanningWatchTest, WhatADeadReplicaWasAtIsTakenOverSoon) {
  Change(Register("run"));
  Claim("dead");
  now_ += PlanningWatch::kClaim;
  EXPECT_EQ(Claim("w").worker, "w");
}

TEST_F(PlanningWatchTest, APlanningThatSomebodyElseHasIsStopped) {
  Change(Register("run"));
  const std::stop_token stop = watch_->Begin(Claim("w"));
  now_ += PlanningWatch::kClaim;
  Claim("other");
  ASSERT_TRUE(watch_->Look());
  EXPECT_TRUE(stop.stop_requested());
}

TEST_F(PlanningWatchTest, ThePlanningOfAJobThatEndedIsStopped) {
  const std::string job = Register("run");
  Change(job);
  const std::stop_token stop = watch_->Begin(Claim("w"));
  ASSERT_TRUE(store_->EndJob(job, now_));
  now_ += PlanningWatch::kRenewAfter;
  ASSERT_TRUE(watch_->Look());
  EXPECT_TRUE(stop.stop_requested());
}

TEST_F(PlanningWatchTest, ASecondLookIsStoppedWhenItsJobChanges) {
  const std::string job = Register("run");
  const std::stop_token stop = watch_->Begin(ClaimSecondLook(job, "w"));
  ASSERT_TRUE(watch_->Look());
  EXPECT_FALSE(stop.stop_requested());
  Change(job);
  ASSERT_TRUE(watch_->Look());
  EXPECT_TRUE(stop.stop_requested());
}

TEST_F(PlanningWatchTest, AFirstLookIsFinishedThoughItsJobChanges) {
  const std::string job = Register("run");
  Change(job);
  const std::stop_token stop = watch_->Begin(Claim("w"));
  Change(job);
  ASSERT_TRUE(watch_->Look());
  EXPECT_FALSE(stop.stop_requested());
}

TEST_F(PlanningWatchTest, ASecondLookEndsWhenAStragglerThatWasAnnouncedBegins) {
  const std::string job = Register("run");
  const std::stop_token stop = watch_->Begin(ClaimSecondLook(job, "w"));
  ASSERT_TRUE(store_->WantPlanning(job, now_ + 700));
  now_ += 699;
  ASSERT_TRUE(watch_->Look());
  EXPECT_FALSE(stop.stop_requested());
  now_ += 1;
  ASSERT_TRUE(watch_->Look());
  EXPECT_TRUE(stop.stop_requested());
}

TEST_F(PlanningWatchTest, OneSecondLookMakesWayForAnotherJob) {
  const std::string old = Register("old");
  const std::string young = Register("young");
  const std::stop_token begun_first = watch_->Begin(ClaimSecondLook(old, "w0"));
  const std::stop_token begun_last = watch_->Begin(ClaimSecondLook(young, "w1"));
  ASSERT_TRUE(watch_->Look());
  EXPECT_FALSE(begun_last.stop_requested());
  Change(Register("other"));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(watch_->Look());
  EXPECT_TRUE(begun_last.stop_requested());
  EXPECT_FALSE(begun_first.stop_requested()) << "one worker is free in a moment";
}

TEST_F(PlanningWatchTest, NoSecondLookMakesWayWhileAWorkerIsFree) {
  Use(3);
  const std::stop_token first = watch_->Begin(ClaimSecondLook(Register("a"), "w0"));
  const std::stop_token second = watch_->Begin(ClaimSecondLook(Register("b"), "w1"));
  Change(Register("other"));
  ASSERT_TRUE(watch_->Look());
  EXPECT_FALSE(first.stop_requested());
  EXPECT_FALSE(second.stop_requested());
}

TEST_F(PlanningWatchTest, WhatHasEndedIsNotKept) {
  Change(Register("run"));
  const store::PlanningTask task = Claim("w");
  watch_->Begin(task);
  watch_->End(task);
  now_ += PlanningWatch::kClaim;
  ASSERT_TRUE(watch_->Look());
  EXPECT_FALSE(IsIdle());
}

TEST_F(PlanningWatchTest, AllAreStoppedAndThoseThatBeginLater) {
  Change(Register("run"));
  const std::stop_token stop = watch_->Begin(Claim("w"));
  watch_->StopAll();
  EXPECT_TRUE(stop.stop_requested());
  Change(Register("other"));
  EXPECT_TRUE(watch_->Begin(Claim("w")).stop_requested());
}

}  // namespace
}  // namespace perseus::server
